// Builds what is published and what wheels hold: `npm run build`. dist/ is committed, since a wheel is built without Node.
import { execFileSync } from "node:child_process";
import { copyFile, readFile, rm } from "node:fs/promises";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const shared = {
  bundle: true,
  format: "esm",
  target: "es2022",
  minify: true,
  external: ["onnxruntime-*", "node:*"],
  legalComments: "none",
};
await rm("dist", { recursive: true, force: true });
await build({ ...shared, entryPoints: ["src/index.ts", "src/worker.ts"], outdir: "dist" });
// The page imports the package as it is published, from the folder that it is in.
const beside = {
  name: "beside",
  setup: ({ onResolve }) =>
    void onResolve({ filter: /src\/index\.js$/ }, () => ({ path: "./index.js", external: true })),
};
await build({ ...shared, entryPoints: ["page/page.ts"], outdir: "dist/page", plugins: [beside] });
for (const name of ["index.html", "page.css"]) await copyFile(`page/${name}`, `dist/page/${name}`);
execFileSync(
  "npx",
  [
    "tsc",
    "--declaration",
    "--emitDeclarationOnly",
    "--rootDir",
    "src",
    "--outDir",
    "dist/types",
    "--project",
    "tsconfig.build.json",
  ],
  { stdio: "inherit" },
);
for (const name of ["index.js", "worker.js", "page/page.js"]) {
  const bytes = await readFile(`dist/${name}`);
  console.log(`${name}: ${bytes.length} bytes, ${gzipSync(bytes).length} compressed`);
}
