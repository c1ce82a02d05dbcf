// Where a checkpoint is kept: a file, IndexedDB, the origin's own file system. What is there is whole: the new one, or
// the one before.
import { got, InvalidInputError } from "./errors.js";

/** Where bytes are kept. */
export interface Place {
  /** What messages call it. */
  readonly name: string;
  read(): Promise<Uint8Array | undefined>;
  write(bytes: Uint8Array): Promise<void>;
}

const STORE = "checkpoints";

/** A key of a database of the browser. */
export function inIndexedDB(key: string, database = "lstm-lower-train"): Place {
  const run = async <T>(mode: IDBTransactionMode, use: (store: IDBObjectStore) => IDBRequest<T>): Promise<T> => {
    if (typeof indexedDB === "undefined")
      throw new InvalidInputError(
        `${key}: a browser with IndexedDB is required, got none; a path or a place of your own keeps a checkpoint, too`,
      );
    const open = indexedDB.open(database, 1);
    open.onupgradeneeded = () => open.result.createObjectStore(STORE);
    const held = await ended(open);
    try {
      const transaction = held.transaction(STORE, mode, { durability: "strict" });
      const request = use(transaction.objectStore(STORE));
      await new Promise<void>((resolve, reject) => {
        transaction.oncomplete = () => {
          resolve();
        };
        transaction.onabort = () => {
          reject(transaction.error ?? new Error("the browser ended the transaction"));
        };
      });
      return request.result;
    } finally {
      held.close();
    }
  };
  return {
    name: key,
    read: () =>
      run<Uint8Array | undefined>("readonly", (store) => store.get(key) as IDBRequest<Uint8Array | undefined>),
    write: async (bytes) => {
      await run("readwrite", (store) => store.put(bytes, key));
    },
  };
}

function ended<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => {
      resolve(request.result);
    };
    request.onerror = () => {
      reject(request.error ?? new Error("the browser has no database"));
    };
  });
}

/** A file that the user has chosen, or one of the origin's own. */
export function inHandle(handle: FileSystemFileHandle): Place {
  return {
    name: handle.name,
    read: async () => {
      const file = await handle.getFile();
      return file.size === 0 ? undefined : new Uint8Array(await file.arrayBuffer());
    },
    write: async (bytes) => {
      const stream = await handle.createWritable();
      await stream.write(bytes as BufferSource);
      await stream.close();
    },
  };
}

/** A file of the origin's private file system; browsers have it on https and on localhost. */
export async function inOPFS(name: string): Promise<Place> {
  return inHandle(await (await navigator.storage.getDirectory()).getFileHandle(name, { create: true }));
}

/** Files written so far, by which one that is on its way is not that of another call. */
let written = 0;

/** A file of this machine, in Node; the one before it stays as `<path>.previous`, as `lstm-lower train` keeps it. */
export function inFile(path: string): Place {
  return {
    name: path,
    read: async () => {
      const { readFile } = await import("node:fs/promises");
      return readFile(path).then(
        (bytes) => new Uint8Array(bytes),
        (error: unknown) => {
          if ((error as { code?: string }).code === "ENOENT") return undefined;
          throw error;
        },
      );
    },
    write: async (bytes) => {
      const { copyFile, open, rename, rm } = await import("node:fs/promises");
      const complete = `${path}.${process.pid}.${written++}.lstm-lower`;
      try {
        const file = await open(complete, "w");
        await file
          .writeFile(bytes)
          .then(() => file.sync())
          .finally(() => file.close());
        await copyFile(path, `${path}.previous`).catch(() => undefined);
        await rename(complete, path);
      } finally {
        await rm(complete, { force: true });
      }
    },
  };
}

/** Whether this is Node rather than a page or a worker. */
export const isNode = (): boolean =>
  typeof process === "object" && typeof (process.versions as { node?: string } | undefined)?.node === "string";

/** A place, or what names one: a path in Node, a key of IndexedDB in a browser. */
export function placeOf(place: unknown): Place {
  if (typeof place === "string" && place !== "") return isNode() ? inFile(place) : inIndexedDB(place);
  if (typeof place === "object" && place !== null) {
    if ("read" in place && "write" in place) return place as Place;
    if ("createWritable" in place) return inHandle(place as FileSystemFileHandle);
  }
  throw new InvalidInputError(
    `a checkpoint requires a path, a key, a file's handle or a place to be kept in, got ${got(place)}`,
  );
}
