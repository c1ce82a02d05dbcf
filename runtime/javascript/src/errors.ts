// The errors, and how their messages write names, lists and shapes: as those of lstm-lower in Python do.

/** Base of every error that is raised on purpose. */
export class LstmLowerError extends Error {
  constructor(message: string) {
    super(shown(message));
    this.name = new.target.kind;
  }

  static readonly kind: string = "LstmLowerError";
}

/** A bundle that is malformed, damaged, or of another version. */
export class InvalidModelError extends LstmLowerError {
  static override readonly kind = "InvalidModelError";
}

/** A value given at run time, such as a feed or an option, that does not fit. */
export class InvalidInputError extends LstmLowerError {
  static override readonly kind = "InvalidInputError";
}

/** What a trainer says that was closed. */
export const closed = (): InvalidInputError =>
  new InvalidInputError("a trainer that is open is required, got one that was closed; load the bundle again");

/** A loss, or a weight, that is infinite or no number. */
export class NotFiniteError extends LstmLowerError {
  static override readonly kind = "NotFiniteError";
}

/** An error as it crosses the border of a worker. */
export interface SentError {
  readonly name: string;
  readonly message: string;
}

const KINDS = [LstmLowerError, InvalidModelError, InvalidInputError, NotFiniteError];

/** What is sent of an error. */
export function sent(error: unknown): SentError {
  return error instanceof Error
    ? { name: error.name, message: error.message }
    : { name: "Error", message: String(error) };
}

/** The error that was sent. */
export function received(error: SentError): Error {
  const Kind = KINDS.find(({ kind }) => kind === error.name);
  return Kind === undefined ? Object.assign(new Error(error.message), { name: error.name }) : new Kind(error.message);
}

/** A text as a terminal may show it: names in files are anybody's, and control characters in them would command it. */
export function shown(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (letter) =>
    letter === "\n" ? letter : `\\u{${letter.codePointAt(0)!.toString(16)}}`,
  );
}

/** `['x', 'y']` */
export const quoted = (names: Iterable<string>): string => `[${[...names].map((name) => `'${name}'`).join(", ")}]`;

/** `[4, 6]`, and of open sizes `[B, ?]`. */
export const sizes = (shape: Iterable<number | string | null>): string =>
  `[${[...shape].map((size) => size ?? "?").join(", ")}]`;

/** What a message says of anything that came. */
export function got(value: unknown): string {
  if (value === null || value === undefined) return "nothing";
  if (typeof value === "string") return `'${value.slice(0, 80)}'`;
  if (typeof value === "number") return written(value);
  if (typeof value === "bigint" || typeof value === "boolean") return String(value);
  if (typeof value !== "object") return `a ${typeof value}`;
  return (
    ((value.constructor as { name?: string } | undefined)?.name ?? "") ||
    Object.prototype.toString.call(value).slice(8, -1)
  );
}

/** A number as Python writes it. */
export const written = (number: number): string => String(number).replace("NaN", "nan").replace("Infinity", "inf");

/** Requires options of some names: one that is misspelt would have no effect else. */
export function checkOptions(what: string, options: unknown, known: object): void {
  if (typeof options !== "object" || options === null)
    throw new InvalidInputError(`${what} requires options in an object, got ${got(options)}`);
  const unknown = Object.keys(options).find((name) => !Object.hasOwn(known, name));
  if (unknown !== undefined)
    throw new InvalidInputError(`${what} requires options of ${quoted(Object.keys(known))}, got '${unknown}'`);
}

/** Requires a whole number of at least so much. */
export function whole(what: string, value: unknown, least = 1): number {
  if (typeof value !== "number" || !Number.isSafeInteger(value) || value < least)
    throw new InvalidInputError(`${what} requires a whole number, at least ${least}, got ${got(value)}`);
  return value;
}
