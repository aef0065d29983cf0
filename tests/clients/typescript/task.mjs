// A workflow called as a task through the official v1 client.
//
//   node task.mjs < {"server": {command, args, cwd, env}, "call": {name, arguments}}
//
// Prints one line of JSON: the messages of the task, and what came of it.

import { readFileSync } from 'node:fs';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { CallToolResultSchema } from '@modelcontextprotocol/sdk/types.js';

const { server, call } = JSON.parse(readFileSync(0, 'utf8'));
const client = new Client({ name: 'workflowlookup-tests', version: '1.0.0' }, { capabilities: { tasks: {} } });
await client.connect(new StdioClientTransport(server));
await client.listTools();
const progress = [];
const seen = [];
const options = { task: { ttl: 600_000 }, timeout: 80_000, onprogress: told => progress.push(told.message) };
for await (const message of client.experimental.tasks.callToolStream(call, CallToolResultSchema, options)) {
    seen.push(message.type === 'result' ? message.result : { type: message.type, ...(message.task ?? message.error) });
}
const listed = await client.experimental.tasks.listTasks();
const one = await client.experimental.tasks.getTask(seen[0].taskId);
console.log(JSON.stringify({ seen, progress, listed: listed.tasks.map(task => task.taskId), one }));
await client.close();
