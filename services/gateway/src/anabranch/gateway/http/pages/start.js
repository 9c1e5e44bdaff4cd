// Draws openapi.json. Without `validatorUrl: null`, the page would send the document to a validator.
SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#interface",
  deepLinking: true,
  defaultModelsExpandDepth: -1,
  docExpansion: "list",
  filter: true,
  validatorUrl: null,
});
