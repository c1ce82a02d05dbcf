import eslint from "typescript-eslint";

export default eslint.config(
  eslint.configs.strictTypeChecked,
  { languageOptions: { parserOptions: { project: true, tsconfigRootDir: import.meta.dirname } } },
  {
    rules: {
      "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true, allowBoolean: true }],
      "@typescript-eslint/no-non-null-assertion": "off",
      "@typescript-eslint/require-await": "off",
    },
  },
  { files: ["**/*.mjs", "**/*.js"], extends: [eslint.configs.disableTypeChecked] },
);
