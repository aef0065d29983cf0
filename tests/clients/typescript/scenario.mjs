// One conversation with the server through an official TypeScript client.
//
//   node scenario.mjs CLIENT < {"server": {command, args, cwd, env}, "conversation": {name: question}}
//   node scenario.mjs CLIENT < {"server": {command, args, cwd, env}, "runs": {workflow, said}}
//
// Prints one line of JSON, what the client saw, and exits with 0. When the conversation could not be held, it says why
// on standard error and exits with 1. The questions are those of promises.py, which also judges the answers; what is to
// happen with runs is told in confirming.py.

import { readFileSync } from 'node:fs';

const REQUEST_TIMEOUT_MS = 20_000;
const WHOLE_TIMEOUT_MS = 60_000;
const ABOUT_US = { name: 'workflowlookup-tests', version: '1.0.0' };

// The v1 line: `initialize` only.
async function v1(server, said) {
    const { Client } = await import('@modelcontextprotocol/sdk/client/index.js');
    const { StdioClientTransport } = await import('@modelcontextprotocol/sdk/client/stdio.js');
    const transport = new StdioClientTransport(server);
    let version;
    transport.setProtocolVersion = negotiated => { version = negotiated; }; // v1 tells only its transport
    const { ElicitRequestSchema, ResourceUpdatedNotificationSchema } = await import('@modelcontextprotocol/sdk/types.js');
    const client = new Client(ABOUT_US, { capabilities: said ? { elicitation: {} } : {} });
    return {
        client,
        transport,
        version: () => version,
        onQuestion: handler => client.setRequestHandler(ElicitRequestSchema, handler),
        onChange: handler => client.setNotificationHandler(ResourceUpdatedNotificationSchema, handler),
        follow: uri => client.subscribeResource({ uri })
    };
}

// The v2 line. In mode `auto` it starts the server twice: a first process is asked `server/discover` and killed, then a
// second one serves. So nothing here may depend on there being one process, and its start-up time counts twice.
async function v2(server, said, mode) {
    const { Client } = await import('@modelcontextprotocol/client');
    const { StdioClientTransport } = await import('@modelcontextprotocol/client/stdio');
    const client = new Client(ABOUT_US, { capabilities: said ? { elicitation: {} } : {}, versionNegotiation: { mode } });
    return {
        client,
        transport: new StdioClientTransport(server),
        version: () => client.getNegotiatedProtocolVersion(),
        onQuestion: handler => client.setRequestHandler('elicitation/create', handler),
        onChange: handler => client.setNotificationHandler('notifications/resources/updated', handler),
        follow: uri => mode === 'legacy' ? client.subscribeResource({ uri }) : client.listen({ resourceSubscriptions: [uri] })
    };
}

const CLIENTS = {
    'v1': v1,
    'v2-legacy': (server, said) => v2(server, said, 'legacy'),
    'v2-auto': (server, said) => v2(server, said, 'auto'),
    'v2-pinned': (server, said) => v2(server, said, { pin: '2026-07-28' })
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

// Two runs at once, each of which wants a person's word.
async function advance(name, { server, runs: { workflow, said } }) {
    const { client, transport, onQuestion, onChange, follow } = await CLIENTS[name](server, said);
    const troubles = [], asked = [], heard = [];
    client.onerror = error => troubles.push(String(error));
    onChange(async ({ params }) => { heard.push(params.uri); });
    if (said) {
        let both;
        const bothAreOpen = new Promise(resolve => { both = resolve; });
        onQuestion(async ({ params }) => {
            asked.push(params);
            if (said.never) {
                process.stdout.write('asked\n');
                await new Promise(() => {});
            }
            if (asked.length === 2) both();
            await bothAreOpen;
            return said;
        });
    }
    await client.connect(transport, { timeout: REQUEST_TIMEOUT_MS });
    const call = async (tool, given) => (await answer(client, { do: 'callTool', name: tool, arguments: given }, name === 'v1')).structuredContent;
    try {
        const ids = [];
        for (const _ of [1, 2]) ids.push((await call('workflow_start', { workflowId: workflow })).runId);
        await follow(`run://${ids[0]}`);
        const told = await Promise.all(ids.map(runId => call('workflow_submit', { runId, stepId: 'one', output: 'done' })));
        const states = await Promise.all(ids.map(runId => call('workflow_status', { runId })));
        const report = await answer(client, { do: 'readResource', uri: `run://${ids[0]}` }, name === 'v1');
        return { ids, asked, told, states, report, heard, troubles };
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
    const request = JSON.parse(readFileSync(0, 'utf8'));
    const seen = await (request.runs ? advance : converse)(name, request);
    process.stdout.write(`${JSON.stringify(seen)}\n`);
} catch (error) {
    console.error(`${name}: ${error.stack ?? error}`);
    process.exitCode = 1;
}
clearTimeout(patience);
