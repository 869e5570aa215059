"use strict";

// Tables sort by a click on a heading; cells with data-sort sort by that number.
for (const table of document.querySelectorAll("table.sorts")) {
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const ascending = heading.getAttribute("aria-sort") !== "ascending";
      headings.forEach((other) => other.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", ascending ? "ascending" : "descending");
      const key = (row) => row.cells[column].dataset.sort ?? row.cells[column].textContent.trim();
      const order = (a, b) => key(a).localeCompare(key(b), undefined, { numeric: false });
      const byNumber = (a, b) => Number(key(a)) - Number(key(b));
      const body = table.tBodies[0];
      const rows = [...body.rows];
      // Rows without a value stay at the end in either order.
      const full = rows.filter((row) => key(row) !== "");
      const numeric = full.every((row) => row.cells[column].dataset.sort !== undefined);
      full.sort(numeric ? byNumber : order);
      if (!ascending) full.reverse();
      body.append(...full, ...rows.filter((row) => key(row) === ""));
    });
  });
}
