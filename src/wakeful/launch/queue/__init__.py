"""Queue targets: messages in NATS JetStream, and the workers that take them."""
