// The files of a bundle: from a server, from a folder, or already at hand.
import { type Description, fileNames, NAME, readDescription } from "./description.js";
import type { Contents } from "./engine.js";
import { got, InvalidInputError, InvalidModelError } from "./errors.js";
import { isNode } from "./places.js";

/** Files by name, as they are or as a `File`. */
export type FilesByName = Record<string, Blob | Uint8Array | ArrayBuffer>;

/** The address or the path of a bundle's folder, or its files. */
export type Source = string | URL | FilesByName | Iterable<File>;

type Reader = (name: string) => Promise<Uint8Array>;

/**
 * Reads a bundle; files are compared with their hashes where they are opened.
 *
 * @throws InvalidModelError its description is damaged, or a file is not there.
 */
export async function readBundle(source: Source): Promise<{ about: Description; contents: Contents }> {
  const read = reader(source);
  const about = readDescription(await read(NAME));
  const names = [...new Set(fileNames(about))];
  const contents = Object.create(null) as Contents;
  await Promise.all(names.map(async (name) => (contents[name] = await read(name))));
  return { about, contents };
}

function reader(source: Source): Reader {
  if (source instanceof URL || typeof source === "string") {
    const address = String(source);
    if (isNode() && !/^https?:/.test(address)) return fromFolder(address);
    return fromServer(address);
  }
  if (typeof source !== "object" || (source as unknown) === null)
    throw new InvalidInputError(`load requires the address or folder of a bundle, or its files, got ${got(source)}`);
  const files: FilesByName =
    Symbol.iterator in source
      ? Object.fromEntries(Array.from(source as Iterable<File>, (file) => [file.name, file]))
      : source;
  return async (name) => {
    const file = Object.hasOwn(files, name) ? files[name]! : undefined;
    if (file === undefined)
      throw new InvalidModelError(
        `a bundle requires its file ${name}, got [${Object.keys(files).sort().join(", ")}]; choose all its files`,
      );
    // A copy, since a worker takes the bytes away.
    return file instanceof Blob
      ? new Uint8Array(await file.arrayBuffer())
      : Uint8Array.from(file instanceof Uint8Array ? file : new Uint8Array(file));
  };
}

function fromServer(address: string): Reader {
  const base = typeof location === "undefined" ? undefined : location.href;
  const folder = new URL(address.endsWith("/") ? address : `${address}/`, base);
  return async (name) => {
    const answer = await fetch(new URL(name, folder)).catch((error: unknown) => {
      throw new InvalidModelError(
        `${folder.href}${name}: a server that answers is required, got ${(error as Error).message}`,
      );
    });
    if (!answer.ok)
      throw new InvalidModelError(
        `${folder.href}${name}: a file of a bundle is required, got ${answer.status} ${answer.statusText}`.trimEnd(),
      );
    return new Uint8Array(await answer.arrayBuffer());
  };
}

function fromFolder(folder: string): Reader {
  return async (name) => {
    const { lstat, readFile } = await import("node:fs/promises");
    const { fileURLToPath } = await import("node:url");
    const path = `${folder.startsWith("file:") ? fileURLToPath(folder) : folder}/${name}`;
    const status = await lstat(path).catch((error: unknown) => {
      throw new InvalidModelError(`${path}: a file of a bundle is required, got ${(error as Error).message}`);
    });
    // A link of a folder that came from elsewhere would have another file read.
    if (!status.isFile()) throw new InvalidModelError(`${path}: a plain file is required, got another one`);
    return new Uint8Array(await readFile(path));
  };
}
