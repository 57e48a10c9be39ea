"""What moves numbers: the model, its engine, the batches that it is fed, and the loop over the steps."""
