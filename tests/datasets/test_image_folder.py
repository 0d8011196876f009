"""Folders of images: class sub-folders, tables of labels, and everything that can be wrong with them."""

import os
import unicodedata

import pandas as pd
import pytest

from peerloss.datasets import read_image_folder
from peerloss.exceptions import InvalidInputError
from tests.datasets.made_images import write_images


def labels_of(folder, **changes):
    """Write the table of all images, with changed columns, and return its path."""
    table = read_image_folder(folder).table.assign(**changes)
    table.to_csv(folder.parent / "labels.csv", index=False)
    return folder.parent / "labels.csv"


def test_sub_folders_are_classes(tmp_path):
    """The first part of a path is the label, also if images lie deeper; rows are sorted by name."""
    folder = write_images(tmp_path / "images", 2)
    (folder / "cat" / "more").mkdir()
    (folder / "cat" / "000.png").rename(folder / "cat" / "more" / "x.png")
    found = read_image_folder(folder)
    assert found.table["file"].tolist() == ["cat/001.png", "cat/more/x.png", "dog/000.png", "dog/001.png"]
    assert found.table["label"].tolist() == ["cat", "cat", "dog", "dog"]
    assert [path.is_file() for path in found.paths] == [True] * 4
    assert found.usable.all()
    assert found.notes == []


def test_other_files_are_ignored_and_counted(tmp_path):
    """Hidden files and folders are not mentioned, text files are."""
    folder = write_images(tmp_path / "images", 1)
    (folder / "cat" / "readme.txt").write_text("")
    (folder / ".cache").mkdir()
    (folder / ".cache" / "x.png").write_text("")
    (folder / "cat" / ".DS_Store").write_text("")
    found = read_image_folder(folder)
    assert len(found.table) == 2
    assert found.notes == ["Files that are not images, ignored: 1 (cat/readme.txt)."]


def test_strange_names_are_kept(tmp_path):
    """Line ends, quotation marks, markup and accents in names are names."""
    folder = write_images(tmp_path / "images", 1)
    names = ['a\nb,"c".png', "<script>.png", "é ü.png", " =1+1.png"]
    for name in names:
        (folder / "dog" / name).write_bytes((folder / "cat" / "000.png").read_bytes())
    assert {f"dog/{name}" for name in names} <= set(read_image_folder(folder).table["file"])


def no_unicode(folder):
    os.rename(folder / "cat" / "000.png", os.fsencode(folder / "cat") + b"/\xff.png")  # noqa: PTH104


def link_out(folder):
    (folder.parent / "secret.png").write_bytes((folder / "cat" / "000.png").read_bytes())
    (folder / "cat" / "000.png").unlink()
    (folder / "cat" / "000.png").symlink_to(folder.parent / "secret.png")


def link_to_itself(folder):
    (folder / "cat" / "000.png").unlink()
    (folder / "cat" / "000.png").symlink_to(folder / "cat" / "000.png")


def folder_link(folder):
    (folder / "eel").symlink_to(folder / "cat", target_is_directory=True)


def truncated(folder):
    path = folder / "cat" / "000.png"
    path.write_bytes(path.read_bytes()[:60])


@pytest.mark.parametrize(
    ("spoil", "message", "left"),
    [
        (no_unicode, r"images whose names are not valid Unicode: 1 \(cat/\\udcff.png\)", 3),
        (link_out, r"links that lead out of it: 1 \(cat/000.png\)", 3),
        (link_to_itself, r"1 \(cat/000.png", 3),
        (folder_link, r"links to folders, which are not followed: 1 \(eel\)", 4),
        (truncated, r"unreadable images: 1 \(cat/000.png is not a complete image", 3),
        (lambda folder: os.mkfifo(folder / "cat" / "p.png"), "cat/p.png is not a regular file", 4),
        (
            lambda folder: (folder / "loose.png").write_text(""),
            r"images in no class sub-folder: 1 \(loose.png\)",
            4,
        ),
    ],
)
def test_problems_are_refused_or_left_out(tmp_path, spoil, message, left):
    """The message counts and lists the files; `skip_unreadable` leaves them out and notes it."""
    folder = write_images(tmp_path / "images", 2)
    spoil(folder)
    with pytest.raises(InvalidInputError, match=message):
        read_image_folder(folder)
    found = read_image_folder(folder, skip_unreadable=True)
    assert found.usable.sum() == left
    assert found.notes[0].startswith("Left out: ")
    assert [path == folder for path in found.paths] == (~found.usable).tolist()


def test_all_problems_are_in_one_message(tmp_path):
    """Of each kind the number and the first five names are given."""
    folder = write_images(tmp_path / "images", 8)
    for i in range(7):
        (folder / "cat" / f"00{i}.png").write_bytes(b"")
    link_out_of = folder / "dog" / "000.png"
    link_out_of.unlink()
    link_out_of.symlink_to("/etc/hostname")
    with pytest.raises(InvalidInputError) as caught:
        read_image_folder(folder)
    message = str(caught.value)
    assert "unreadable images: 7 (cat/000.png is empty, " in message
    assert "cat/004.png is empty, …)" in message
    assert "lead out of it: 1 (dog/000.png)" in message


def test_if_nothing_is_left_the_folder_is_refused(tmp_path):
    """Skipping all images is not an audit."""
    folder = write_images(tmp_path / "images", 1)
    for path in folder.rglob("*.png"):
        path.write_bytes(b"")
    with pytest.raises(InvalidInputError, match=r"no image can be used: unreadable images: 2 \("):
        read_image_folder(folder, skip_unreadable=True)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"cat": "train", "dog": "val"}, r"its sub-folders are 2 \(train, val\)"),
        ({"cat": "cat", "dog": ".dog"}, "all are in 'cat'"),
        ({"cat": ".cat", "dog": ".dog"}, "none was found"),
    ],
)
def test_folders_that_are_not_classes_are_refused(tmp_path, names, message):
    """Splits, a single class, and no images at all."""
    folder = write_images(tmp_path / "images", 1)
    for old, new in names.items():
        (folder / old).rename(folder / new)
    with pytest.raises(InvalidInputError, match=message):
        read_image_folder(folder)


def test_what_is_not_a_folder_is_refused(tmp_path):
    """A missing path and a file."""
    with pytest.raises(InvalidInputError, match="it does not exist"):
        read_image_folder(tmp_path / "images")
    (tmp_path / "images").write_text("")
    with pytest.raises(InvalidInputError, match="it is a file"):
        read_image_folder(tmp_path / "images")


def test_a_table_of_labels_keeps_its_rows_and_columns(tmp_path):
    """Files may be named with backslashes, without their ending, with the folder's name, or absolutely."""
    folder = write_images(tmp_path / "images", 2)
    names = ["cat\\000.png", "cat/001", "images/dog/000.png", str(folder / "dog" / "001.png")]
    labels = labels_of(folder, file=names, more=[1, 2, 3, 4])
    found = read_image_folder(folder, labels)
    assert found.table["file"].tolist() == names
    assert list(found.table) == ["file", "label", "more"]
    expected = ["cat/000.png", "cat/001.png", "dog/000.png", "dog/001.png"]
    assert [path.relative_to(folder).as_posix() for path in found.paths] == expected


def test_numbers_are_read_as_the_names_that_they_are(tmp_path):
    """Files 000.png and 001.png are found by 000 and 001, not by 0 and 1."""
    folder = write_images(tmp_path / "images", 2) / "cat"
    (tmp_path / "labels.csv").write_text("id,label\n000,a\n001,b\n")
    found = read_image_folder(folder, tmp_path / "labels.csv", file_column="id")
    assert [path.name for path in found.paths] == ["000.png", "001.png"]


def test_accents_may_be_composed_differently(tmp_path):
    """File systems store é as one or as two characters."""
    folder = write_images(tmp_path / "images", 1)
    (folder / "cat" / "000.png").rename(folder / "cat" / unicodedata.normalize("NFD", "é.png"))
    labels = labels_of(folder, file=[unicodedata.normalize("NFC", "cat/é.png"), "dog/000.png"])
    assert read_image_folder(folder, labels).usable.all()


def test_images_without_labels_are_ignored_and_counted(tmp_path):
    """Only the images of the table are audited."""
    folder = write_images(tmp_path / "images", 2)
    labels = labels_of(folder)
    pd.read_csv(labels).iloc[1:].to_csv(labels, index=False)
    found = read_image_folder(folder, labels)
    assert len(found.table) == 3
    assert found.notes == ["Images without a row in labels.csv, ignored: 1 (cat/000.png)."]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cat/999.png", r"images in the table, but not in the folder: 1 \(cat/999.png\)"),
        ("../secret.png", r"outside the folder, or links that lead out of it: 1 \(../secret.png\)"),
        ("/etc/hostname", r"1 \(/etc/hostname\)"),
        ("", r"rows without a file name: 1 \(row 3\)"),
    ],
)
def test_labels_without_images_are_refused_or_left_out(tmp_path, name, message):
    """The rows are named; with `skip_unreadable` they stay in the table and are not usable."""
    folder = write_images(tmp_path / "images", 1)
    (tmp_path / "secret.png").write_bytes((folder / "cat" / "000.png").read_bytes())
    labels = labels_of(folder, file=["cat/000.png", name])
    with pytest.raises(InvalidInputError, match=message):
        read_image_folder(folder, labels)
    found = read_image_folder(folder, labels, skip_unreadable=True)
    assert found.usable.tolist() == [True, False]
    assert len(found.table) == 2
    assert found.paths[1] == folder


def test_a_name_that_fits_several_images_is_refused(tmp_path):
    """Without its ending; the full name is always unique."""
    folder = write_images(tmp_path / "images", 1)
    labels = labels_of(folder, file=["cat/000", "dog/000.png"])
    (folder / "cat" / "000.jpg").write_bytes((folder / "cat" / "000.png").read_bytes())
    with pytest.raises(InvalidInputError, match=r"names that fit several images: 1 \(cat/000\)"):
        read_image_folder(folder, labels)
    labels = labels_of(folder, file=["cat/000.jpg", "cat/000.png", "dog/000.png"])
    assert read_image_folder(folder, labels).usable.all()


def test_an_image_that_is_named_twice_is_refused(tmp_path):
    """Two rows for one image would count it twice."""
    folder = write_images(tmp_path / "images", 1)
    labels = labels_of(folder, file=["cat/000.png", "cat/./000"])
    with pytest.raises(InvalidInputError, match=r"named more than once: 1 \(cat/000.png\)"):
        read_image_folder(folder, labels)


def test_a_missing_column_is_named(tmp_path):
    """The columns of the table are listed."""
    folder = write_images(tmp_path / "images", 1)
    with pytest.raises(InvalidInputError, match="has no column 'image'; its columns are 'file', 'label'"):
        read_image_folder(folder, labels_of(folder), file_column="image")


def test_exact_copies_are_reported(tmp_path):
    """Copies with different labels prove that a label is wrong."""
    folder = write_images(tmp_path / "images", 2)
    content = (folder / "cat" / "000.png").read_bytes()
    (folder / "cat" / "copy.png").write_bytes(content)
    (folder / "dog" / "copy.png").write_bytes(content)
    notes = read_image_folder(folder).notes
    assert notes == [
        "Images that are exact copies of another one: 2.",
        "Groups of exact copies with different labels: 1 (000.png = copy.png).",
    ]
