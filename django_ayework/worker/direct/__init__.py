"""First attempts of works that skip the queue, in the process that enqueued them."""
