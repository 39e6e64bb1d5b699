// A member of another client: kafka-node's HighLevelConsumer. Arguments: ZooKeeper, group, topic.
// Prints topic, partition, offset, key, value with tabs between; SIGTERM commits and leaves.
const kafka = require('kafka-node');
const [connect, groupId, topic] = process.argv.slice(2);
const rebalanceRetry = { retries: 20, factor: 1, minTimeout: 300, maxTimeout: 1000, randomize: false };
const options = { groupId, autoCommit: true, autoCommitIntervalMs: 500, fromOffset: false, rebalanceRetry };
const client = new kafka.Client(connect, 'tests', { sessionTimeout: 4000 });
const consumer = new kafka.HighLevelConsumer(client, [{ topic }], options);
consumer.on('message', (m) => process.stdout.write(`${m.topic}\t${m.partition}\t${m.offset}\t\t${m.value}\n`));
for (const event of ['registered', 'rebalancing', 'rebalanced', 'error', 'offsetOutOfRange']) {
  consumer.on(event, (what) => console.error(event, what || ''));
}
process.on('SIGTERM', () => consumer.close(true, () => process.exit(143)));
