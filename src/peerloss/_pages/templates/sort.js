// A click on a heading sorts its table by that column; another click reverses the order. Empty cells stay last.
document.querySelectorAll("table.sortable").forEach(function (table) {
  const headings = Array.from(table.tHead.rows[0].cells);
  headings.forEach(function (heading, column) {
    heading.querySelector("button").addEventListener("click", function () {
      const descending = heading.getAttribute("aria-sort") === "ascending";
      headings.forEach((other) => other.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
      const body = table.tBodies[0];
      const rows = Array.from(body.rows).map((row) => [row.cells[column].dataset.value || "", row]);
      rows.sort(function ([a], [b]) {
        if (a === "" || b === "") return (a === "") - (b === "");
        const order = a.localeCompare(b, "en", { numeric: true });
        const difference = isNaN(a) || isNaN(b) ? order : a - b;
        return descending ? -difference : difference;
      });
      body.append(...rows.map(([, row]) => row));
    });
  });
});
