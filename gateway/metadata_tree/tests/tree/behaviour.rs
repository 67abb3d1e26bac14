//! Single properties, each with what it is for.
