// Loads Carillon's gRPC API:
//
//   k6 run -e ADDRESS=127.0.0.1:7070 -e RATE=20 -e DURATION=30s grpc.js
//
// README.md in the folder above lists the settings.
import { check } from 'k6';
import grpc from 'k6/net/grpc';
import {
  BATCH, PARENT, READ_JOBS, READ_SLOTS, TIMEOUT,
  batchRequests, createRequest, newRun, oneOf, optionsFor, readRequest, uniqueName,
} from './shared.js';

const ADDRESS = __ENV.ADDRESS || '127.0.0.1:7070';

export const options = optionsFor('grpc_req_duration');

const client = new grpc.Client();
let connected = false; // this VU, which keeps its connection

// call sends a request; the server's reflection says how it is encoded. The name is the
// tag by which the thresholds tell calls apart.
function call(method, request, name) {
  if (!connected) { // an exception alone would not fail the run; a check does
    connected = check(client, { 'gRPC connects': (c) => c.connect(ADDRESS, { plaintext: true, reflect: true, timeout: TIMEOUT }) });
  }
  return client.invoke(`carillon.v1.${method}`, request, { tags: { name: name }, timeout: TIMEOUT });
}

// prepare is a call outside of the scenarios, which can't go on without its answer.
function prepare(method, request) {
  const r = call(method, request, 'prepare');
  if (r.status !== grpc.StatusOK) {
    throw new Error(`${method}: ${JSON.stringify(r.error)}`);
  }
  return r.message;
}

export function setup() {
  const run = newRun();
  const jobs = [];
  for (let i = 0; i < READ_JOBS; i++) {
    const name = prepare('JobService/CreateJob', { parent: PARENT, ...readRequest(run, i) }).job.name;
    for (let n = 0; n < READ_SLOTS; n++) {
      prepare('JobService/RunJob', { name: name, request_id: `${run}-${i}-${n}` });
    }
    jobs.push(name);
  }
  client.close();
  return { run: run, jobs: jobs };
}

export function createJob(data) {
  const id = uniqueName(data.run);
  const request = createRequest(id, { immediate: {} }, { text: '{"from": "k6"}' });
  const r = call('JobService/CreateJob', { parent: PARENT, ...request }, 'CreateJob');
  check(r, {
    'CreateJob is OK': (r) => r.status === grpc.StatusOK,
    'CreateJob answers the job': (r) => r.status === grpc.StatusOK && r.message.job.name === `${PARENT}/jobs/${id}`,
  });
}

export function batchCreateJobs(data) {
  const request = { parent: PARENT, requests: batchRequests(uniqueName(data.run)) };
  const r = call('JobService/BatchCreateJobs', request, 'BatchCreateJobs');
  check(r, {
    'BatchCreateJobs is OK': (r) => r.status === grpc.StatusOK,
    'BatchCreateJobs answers every job': (r) => r.status === grpc.StatusOK && r.message.jobs.length === BATCH,
  });
}

export function listSlots(data) {
  const r = call('SlotService/ListSlots', { parent: oneOf(data.jobs), page_size: 50 }, 'ListSlots');
  check(r, {
    'ListSlots is OK': (r) => r.status === grpc.StatusOK,
    'ListSlots answers slots': (r) => r.status === grpc.StatusOK && r.message.slots.length >= READ_SLOTS,
  });
}

export function getJob(data) {
  const name = oneOf(data.jobs);
  const r = call('JobService/GetJob', { name: name }, 'GetJob');
  check(r, {
    'GetJob is OK': (r) => r.status === grpc.StatusOK,
    'GetJob answers the job': (r) => r.status === grpc.StatusOK && r.message.job.name === name,
  });
}

export function teardown(data) {
  for (const name of data.jobs) {
    prepare('JobService/DeleteJob', { name: name });
  }
  client.close();
}
