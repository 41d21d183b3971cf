"""The data model: tags, events, tag sets, dependence, the order O, schemas, batches and emitted outputs."""
