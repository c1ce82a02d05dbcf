// Evaluates an expression in a report with its graphs open: node evaluate.mjs OPTIONS, a JSON object.
import { opened } from "./browser.mjs";

const options = JSON.parse(process.argv[2]);
const found = await opened({ ...options, page: "#graphs" }, async (page) => ({ value: await page.evaluate(options.expression) }));
console.log(JSON.stringify(found));
