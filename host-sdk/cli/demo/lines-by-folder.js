// Counts the lines of every Rust file of a source tree, by folder. It parks twice on its way: once because it yields,
// and once because it sleeps for longer than its time budget.

/** Every file below `folder`, found by listing folders side by side. */
async function walk(folder) {
  const { entries } = await ls({ path: folder });
  const wanted = entries.filter(({ name }) => name !== "target" && !name.startsWith("."));
  const below = wanted.map(({ name, kind }) => {
    const path = folder === "." ? name : `${folder}/${name}`;
    return kind === "directory" ? walk(path) : [path];
  });
  return (await Promise.all(below)).flat();
}

const paths = (await walk(".")).filter((path) => path.endsWith(".rs"));
console.log(`found ${paths.length} Rust files`);

await yield_control("the tree is listed");

// All files at once: some run, the rest wait their turn.
const files = await Promise.all(paths.map((path) => read({ path })));

const table = new Map();
for (const [index, { content }] of files.entries()) {
  const folder = paths[index].split("/").slice(0, -1).join("/") || ".";
  const row = table.get(folder) ?? { folder, files: 0, lines: 0, docs: 0 };
  const lines = content.split("\n");
  row.files += 1;
  row.lines += lines.length;
  row.docs += lines.filter((line) => /^\s*\/\/[\/!]/.test(line)).length;
  table.set(folder, row);
}

// Longer than the budget of one call: the cell is parked meanwhile, and resumes with everything that it holds.
await new Promise((resolve) => setTimeout(resolve, 1500));

return [...table.values()].sort((a, b) => b.lines - a.lines);
