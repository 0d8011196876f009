// Filters the table of suspects by text and labels, and writes the rows shown as CSV. All data are in the page.
(function () {
  const at = (id) => document.getElementById(id);
  if (!at("filters")) return;
  const rows = Array.from(at("table").tBodies[0].rows).map((row) => ({
    row: row,
    text: Array.from(row.cells).map(full).join("\n").toLowerCase(),
    given: row.dataset.given,
    suggested: row.dataset.suggested,
  }));

  function full(cell) { return cell.title || cell.textContent; }

  function filter() {
    const words = at("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const [given, suggested] = [at("given").value, at("suggested").value];
    let shown = 0;
    rows.forEach((entry) => {
      const matches = (given === "" || entry.given === given) &&
        (suggested === "" || entry.suggested === suggested) &&
        words.every((word) => entry.text.includes(word));
      entry.row.hidden = !matches;
      shown += matches;
    });
    at("found").textContent = shown.toLocaleString("en") + " of " + rows.length.toLocaleString("en") + " shown";
  }

  function quoted(text) {
    // A spreadsheet would run a text that begins with one of these characters as a formula.
    const isFormula = /^[=+\-@\t\r]/.test(text) && isNaN(text);
    return '"' + (isFormula ? "'" : "") + text.replaceAll('"', '""') + '"';
  }

  function download() {
    const heads = Array.from(at("table").tHead.rows[0].cells);
    const columns = heads.map((_, index) => index).filter((index) => heads[index].dataset.kind !== "picture");
    const lines = [columns.map((index) => quoted(heads[index].textContent))];
    Array.from(at("table").tBodies[0].rows).filter((row) => !row.hidden).forEach((row) => {
      lines.push(columns.map((index) => {
        const cell = row.cells[index];
        return quoted(cell.classList.contains("why") ? cell.dataset.value : full(cell));
      }));
    });
    const link = document.createElement("a");
    const content = new Blob([lines.map((line) => line.join(",")).join("\r\n") + "\r\n"], { type: "text/csv" });
    link.href = URL.createObjectURL(content);
    link.download = "suspects.csv";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  at("filters").addEventListener("submit", (event) => event.preventDefault());
  ["search", "given", "suggested"].forEach((id) => at(id).addEventListener("input", filter));
  at("download").addEventListener("click", download);
  filter();
})();
