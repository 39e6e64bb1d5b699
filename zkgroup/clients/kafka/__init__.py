"""Kafka, through confluent-kafka, which ``client`` alone imports."""
