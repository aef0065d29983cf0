// One conversation with the server through an official TypeScript client.
//
//   node scenario.mjs CLIENT < {"server": {command, args, cwd, env}, "conversation": {name: question}}
//
// Prints one line of JSON, what the client saw, and exits with 0. When the conversation could not be held, it says why
// on standard error and exits with 1. The questions are those of promises.py, which also judges the answers.

import { readFileSync } from 'node:fs';

const REQUEST_TIMEOUT_MS = 20_000;
const WHOLE_TIMEOUT_MS = 60_000;
const ABOUT_US = { name: 'workflowlookup-tests', version: '1.0.0' };

// The v1 line: `initialize` only.
async function v1(server) {
    const { Client } = await import('@modelcontextprotocol/sdk/client/index.js');
    const { StdioClientTransport } = await import('@modelcontextprotocol/sdk/client/stdio.js');
    const transport = new StdioClientTransport(server);
    let version;
    transport.setProtocolVersion = negotiated => { version = negotiated; }; // v1 tells only its transport
    return { client: new Client(ABOUT_US), transport, version: () => version };
}

// The v2 line. In mode `auto` it starts the server twice: a first process is asked `server/discover` and killed, then a
// second one serves. So nothing here may depend on there being one process, and its start-up time counts twice.
async function v2(server, mode) {
    const { Client } = await import('@modelcontextprotocol/client');
    const { StdioClientTransport } = await import('@modelcontextprotocol/client/stdio');
    const client = new Client(ABOUT_US, { versionNegotiation: { mode } });
    return { client, transport: new StdioClientTransport(server), version: () => client.getNegotiatedProtocolVersion() };
}

const CLIENTS = {
    'v1': v1,
    'v2-legacy': server => v2(server, 'legacy'),
    'v2-auto': server => v2(server, 'auto'),
    'v2-pinned': server => v2(server, { pin: '2026-07-28' })
};

const ASK = {
    listTools: (client, _, options) => client.listTools({}, options),
    // v1 has a schema for the result in second place
    callTool: (client, { name, arguments: given }, options, isV1) =>
        isV1 ? client.callTool({ name, arguments: given }, undefined, options) : client.callTool({ name, arguments: given }, options),
    listResources: (client, _, options) => client.listResources({}, options),
    readResource: (client, { uri }, options) => client.readResource({ uri }, options),
    listResourceTemplates: (client, _, options) => client.listResourceTemplates({}, options),
    listPrompts: (client, _, options) => client.listPrompts({}, options),
    getPrompt: (client, { name, arguments: given }, options) => client.getPrompt({ name, arguments: given }, options),
    complete: (client, { uri, argument }, options) => client.complete({ ref: { type: 'ref/resource', uri }, argument }, options)
};

async function answer(client, question, isV1) {
    try {
        return await ASK[question.do](client, question, { timeout: REQUEST_TIMEOUT_MS }, isV1);
    } catch (error) {
        // A refusal by the server has a number; whatever the library itself objects to is told whole.
        if (Number.isInteger(error.code) && error.data !== undefined) {
            return { failure: { code: error.code, data: error.data } };
        }
        return { failure: { code: error.code, message: `${error.name}: ${error.message}` } };
    }
}

async function converse(name, { server, conversation }) {
    const { client, transport, version } = await CLIENTS[name](server);
    const troubles = [];
    client.onerror = error => troubles.push(String(error)); // where the libraries put messages that they cannot read
    client.fallbackNotificationHandler = async notification => { troubles.push(JSON.stringify(notification)); };
    await client.connect(transport, { timeout: REQUEST_TIMEOUT_MS });
    try {
        const seen = {
            version: version(),
            server: client.getServerVersion(),
            capabilities: client.getServerCapabilities(),
            instructions: client.getInstructions()
        };
        for (const [topic, question] of Object.entries(conversation)) {
            seen[topic] = await answer(client, question, name === 'v1');
        }
        return { ...seen, troubles };
    } finally {
        await client.close();
    }
}

const name = process.argv[2];
if (!(name in CLIENTS)) {
    console.error(`usage: node scenario.mjs ${Object.keys(CLIENTS).join('|')} < request.json`);
    process.exit(1);
}
const patience = setTimeout(() => {
    console.error(`${name}: the conversation took longer than ${WHOLE_TIMEOUT_MS / 1000} seconds`);
    process.exit(1);
}, WHOLE_TIMEOUT_MS);
try {
    const seen = await converse(name, JSON.parse(readFileSync(0, 'utf8')));
    process.stdout.write(`${JSON.stringify(seen)}\n`);
} catch (error) {
    console.error(`${name}: ${error.stack ?? error}`);
    process.exitCode = 1;
}
clearTimeout(patience);
