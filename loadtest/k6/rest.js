// Loads Carillon's REST API:
//
//   k6 run -e ADDRESS=127.0.0.1:7080 -e RATE=20 -e DURATION=30s rest.js
//
// README.md in the folder above lists the settings.
import { check } from 'k6';
import http from 'k6/http';
import {
  BATCH, PARENT, READ_JOBS, READ_SLOTS, TIMEOUT,
  batchRequests, createRequest, newRun, oneOf, optionsFor, readRequest, uniqueName,
} from './shared.js';

const BASE = `http://${__ENV.ADDRESS || '127.0.0.1:7080'}/v1`;

export const options = optionsFor('http_req_duration');
options.thresholds.http_req_failed = ['rate==0'];

// send sends a request, with a document if there is one. The name is the tag by which
// the thresholds tell calls apart: without it k6 would take every URL for one.
function send(method, path, name, body) {
  const params = { headers: { Accept: 'application/json' }, tags: { name: name }, timeout: TIMEOUT };
  if (body === undefined) {
    return http.request(method, `${BASE}/${path}`, null, params);
  }
  params.headers['Content-Type'] = 'application/json';
  return http.request(method, `${BASE}/${path}`, JSON.stringify(body), params);
}

// create sends a CreateJobRequest: the job is the document, all else stands in the URL.
function create(request, name) {
  const { job, ...rest } = request;
  const query = Object.keys(rest).map((key) => `${key}=${encodeURIComponent(rest[key])}`).join('&');
  return send('POST', `${PARENT}/jobs?${query}`, name, job);
}

// prepared returns the document of a call outside of the scenarios, which can't go on
// without it.
function prepared(r) {
  if (r.status !== 200) {
    throw new Error(`${r.status}: ${r.body}`);
  }
  return r.json();
}

export function setup() {
  const run = newRun();
  const jobs = [];
  for (let i = 0; i < READ_JOBS; i++) {
    const name = prepared(create(readRequest(run, i), 'prepare')).name;
    for (let n = 0; n < READ_SLOTS; n++) {
      prepared(send('POST', `${name}:run`, 'prepare', { request_id: `${run}-${i}-${n}` }));
    }
    jobs.push(name);
  }
  return { run: run, jobs: jobs };
}

export function createJob(data) {
  const id = uniqueName(data.run);
  const r = create(createRequest(id, { immediate: {} }, { from: 'k6' }), 'CreateJob');
  check(r, {
    'CreateJob is 200': (r) => r.status === 200,
    'CreateJob answers the job': (r) => r.status === 200 && r.json('name') === `${PARENT}/jobs/${id}`,
  });
}

export function batchCreateJobs(data) {
  const r = send('POST', `${PARENT}/jobs:batchCreate`, 'BatchCreateJobs', { requests: batchRequests(uniqueName(data.run)) });
  check(r, {
    'BatchCreateJobs is 200': (r) => r.status === 200,
    'BatchCreateJobs answers every job': (r) => r.status === 200 && r.json('jobs').length === BATCH,
  });
}

export function listSlots(data) {
  const r = send('GET', `${oneOf(data.jobs)}/slots?page_size=50`, 'ListSlots');
  check(r, {
    'ListSlots is 200': (r) => r.status === 200,
    'ListSlots answers slots': (r) => r.status === 200 && r.json('slots').length >= READ_SLOTS,
  });
}

export function getJob(data) {
  const name = oneOf(data.jobs);
  const r = send('GET', name, 'GetJob');
  check(r, {
    'GetJob is 200': (r) => r.status === 200,
    'GetJob answers the job': (r) => r.status === 200 && r.json('name') === name,
  });
}

export function teardown(data) {
  for (const name of data.jobs) {
    prepared(send('DELETE', name, 'prepare'));
  }
}
