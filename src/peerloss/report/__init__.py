"""What a folder of results says: tables beside the paper's, tests, figures, one page.

``build_report`` works everything out, ``write_report`` writes the page and its files. Pages and pictures need
the extra ``report`` (matplotlib and jinja2); ``build_report`` and ``figures`` do not.
"""

from peerloss.report._files import check_page_path
from peerloss.report._report import Report, Section, build_report
from peerloss.report._text import figures
from peerloss.report._write import write_demo, write_report

__all__ = ["Report", "Section", "build_report", "check_page_path", "figures", "write_demo", "write_report"]
