//! The whole step: filters, update, checkpoint.
