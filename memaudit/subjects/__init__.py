"""Any callable or module as a subject, hosts of several parts, batches that fit into memory."""
