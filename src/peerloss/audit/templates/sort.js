// A click on a heading sorts the table of suspects by that column; another click turns the order round.
(function () {
  const table = document.querySelector("table.sortable");
  const headings = Array.from(table.tHead.rows[0].cells);
  function compare(a, b) {
    if (a === "" || b === "") return (a === "") - (b === "");
    const numbers = a - b;
    return isNaN(numbers) ? a.localeCompare(b, "en", { numeric: true }) : numbers;
  }
  headings.forEach(function (heading, column) {
    heading.querySelector("button").addEventListener("click", function () {
      const turn = heading.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      headings.forEach((other) => other.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", turn === 1 ? "ascending" : "descending");
      const rows = Array.from(table.tBodies[0].rows, (row) => [row.cells[column].dataset.value, row]);
      rows.sort(([a], [b]) => turn * compare(a, b));
      table.tBodies[0].append(...rows.map(([, row]) => row));
    });
  });
})();
