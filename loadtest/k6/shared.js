// What grpc.js and rest.js have in common: the settings, the scenarios, and the jobs
// that they make.
import exec from 'k6/execution';

export const PARENT = `namespaces/${__ENV.NAMESPACE || 'default'}`;
export const BATCH = number('BATCH', 10); // jobs in one BatchCreateJobs
export const READ_JOBS = number('READ_JOBS', 5); // that ListSlots and GetJob read
export const READ_SLOTS = number('READ_SLOTS', 10); // of each of them
export const TIMEOUT = '30s'; // of one call
const HANDLER = __ENV.HANDLER || 'bench.run';

// number reads a setting that is a whole number, at least 1.
function number(name, otherwise) {
  const n = Number(__ENV[name] || otherwise);
  if (!Number.isInteger(n) || n < 1) {
    throw new Error(`${name} must be a whole number, at least 1; it is ${__ENV[name]}`);
  }
  return n;
}

// optionsFor makes the options of a script whose calls are timed by a metric. All four
// scenarios run at the same time, each at its rate whatever the server does: a slow
// server gets no fewer calls, and a call that found no free VU fails the run, since the
// rate was not what it says.
export function optionsFor(duration) {
  const p99 = [`p(99)<${number('P99_MS', 500)}`];
  return {
    scenarios: {
      create_job: scenario('createJob'),
      batch_create_jobs: scenario('batchCreateJobs'),
      list_slots: scenario('listSlots'),
      get_job: scenario('getJob'),
    },
    thresholds: {
      checks: ['rate==1'],
      dropped_iterations: ['count==0'],
      [`${duration}{name:CreateJob}`]: p99,
      [`${duration}{name:BatchCreateJobs}`]: p99,
      [`${duration}{name:ListSlots}`]: p99,
      [`${duration}{name:GetJob}`]: p99,
    },
  };
}

function scenario(name) {
  return {
    executor: 'constant-arrival-rate',
    exec: name,
    rate: number('RATE', 20), // iterations in a second, each of one call
    timeUnit: '1s',
    duration: __ENV.DURATION || '30s',
    preAllocatedVUs: number('VUS', 20),
  };
}

// newRun names a run: two of them may load the same server.
export function newRun() {
  return `k6-${Date.now().toString(36)}-${Math.floor(Math.random() * 36 ** 4).toString(36)}`;
}

// uniqueName names what this iteration makes. Its number is of the whole test: no other
// iteration of the scenario has it, of whatever VU.
export function uniqueName(run) {
  return `${run}-${exec.scenario.name}-${exec.scenario.iterationInTest}`;
}

// oneOf picks what this iteration reads, one after the other.
export function oneOf(names) {
  return names[exec.scenario.iterationInTest % names.length];
}

// createRequest makes a CreateJobRequest without its parent. Its id makes it repeatable
// too, as a client should that may have to ask again.
export function createRequest(id, schedule, params) {
  const job = { handler: HANDLER, schedule: schedule, labels: { 'made-by': 'k6' } };
  if (params !== undefined) {
    job.params = params;
  }
  return { job_id: id, request_id: id, allow_unregistered_handler: true, job: job };
}

// batchRequests makes the requests of a batch: jobs that run once, in an hour, so that
// what is measured is how they are stored.
export function batchRequests(id) {
  const at = new Date(Date.now() + 3600 * 1000);
  at.setMilliseconds(0);
  const requests = [];
  for (let i = 0; i < BATCH; i++) {
    requests.push(createRequest(`${id}-${i}`, { run_at: at.toISOString() }));
  }
  return requests;
}

// readRequest makes a job that is read: it fires every hour until teardown ends it.
export function readRequest(run, i) {
  return createRequest(`${run}-read-${i}`, { interval: { every: '3600s' } });
}
