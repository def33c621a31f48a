"""The one door for files that undertow writes: a schema for each, read with one kind of error, sealed against change.

read_document(path, RunDocument)          # run.json as plain values: types, ranges, sizes and names are checked
read_table(path, METRICS)                 # a pyarrow table with the columns it should have
read_tensors(path), read_header(path)     # safetensors; a flipped byte is noticed
write_document, write_table, write_tensors, write_archive
"""
