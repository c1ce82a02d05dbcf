// Takes a picture of a report's graphs: node picture.mjs OPTIONS, a JSON object. Prints how long things took as JSON.
import { opened } from "./browser.mjs";

const options = JSON.parse(process.argv[2]);
const { show, picture } = options;

const found = await opened({ ...options, page: "#graphs" }, async (page, notes) => {
  const boxes = () => page.evaluate(() => right.shown().length);
  const first = await boxes();
  const opening = await page.evaluate(() => {
    const start = performance.now();
    right.openAll();
    document.querySelector("#right svg").getBoundingClientRect();
    return performance.now() - start;
  });
  const everything = await boxes();
  const closing = await page.evaluate(() => {
    const start = performance.now();
    right.setOpen(openAtFirst(right.tree.root, SHOWN_AT_FIRST));
    document.querySelector("#right svg").getBoundingClientRect();
    return performance.now() - start;
  });
  if (show) await page.evaluate(show);
  if (picture) await page.screenshot({ path: picture });
  return { first, everything, opening, closing, ...notes };
});
console.log(JSON.stringify(found));
