"""Members that are not networks: linear models, forests and boosted trees."""
