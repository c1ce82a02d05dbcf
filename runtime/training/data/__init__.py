"""Training data: arrays, folders of shards, tables in columns, streams; each becomes a `Source` of batches."""
