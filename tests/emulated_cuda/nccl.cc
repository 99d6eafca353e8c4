#include <nccl.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "work.h"

namespace {

// Describes data that one rank sends to another. Both ranks refer to it until the receiver has copied it.
struct Given {
  const void* from;
  size_t bytes;
  bool collective;
  bool taken = false;
};

struct Operation {
  enum class Kind { send, receive, all_gather } kind;
  const void* from;
  void* to;
  size_t bytes;
  int peer;
};

constexpr int kCollective = -1;

// Holds the state shared by all ranks of one unique id.
struct Group {
  std::mutex mutex;  // protects all members of Group
  std::condition_variable changed;
  int ranks = 0, finalized = 0;
  std::map<int, int> gpus;                                                  // maps the ranks that have arrived to their GPUs
  bool twice = false;                                                       // true if two ranks use one GPU
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Given>>> given;  // the data sent and not yet received, by (sender, receiver)
};

std::mutex registry_mutex;  // protects `registry` and the counters declared below
std::map<int, std::shared_ptr<Group>> registry;
int next_id = 1, alive = 0, most_blocks = 0;
// the condition variable is never destroyed, since threads may still wait for it when the process exits
std::condition_variable& abort_changed = *new std::condition_variable;
bool abort_blocks = false;  // true while ncclCommAbort must hang; protected by registry_mutex
std::atomic<int> waiting = 0;

}  // namespace

struct ncclComm {
  std::shared_ptr<Group> group;
  int rank = 0;
  std::vector<void*> memory;  // the GPU memory that the communicator has allocated
  // Peers for which memory is allocated; kCollective stands for collectives.
  std::set<int> pairs;
  // these members are protected by the group's mutex; `aborted` ends the communicator's waits
  bool blocking = true, ready = false, aborted = false, finalized = false;
  ncclResult_t error = ncclSuccess;
  std::string said;
  // Work of a non-blocking group call begins when the communicator is polled for the second time.
  int looks_until_begun = 0;
  std::vector<std::pair<cudaStream_t, std::vector<Operation>>> asked;
};

namespace {

thread_local int group_depth = 0;
thread_local std::vector<std::pair<std::pair<ncclComm_t, cudaStream_t>, std::vector<Operation>>> group_asked;

ncclResult_t planted(const char* function) { return emulated_cuda::planted(function) == cudaSuccess ? ncclSuccess : ncclSystemError; }

// Records the communicator's first error. The caller holds the group's mutex.
void fail(ncclComm& comm, ncclResult_t error, const std::string& said) {
  if (comm.error != ncclSuccess) return;
  comm.error = error, comm.said = said;
}

std::shared_ptr<Given> give(ncclComm& comm, int to, const void* from, size_t bytes, bool collective) {
  auto given = std::make_shared<Given>(Given{from, bytes, collective});
  comm.group->given[{comm.rank, to}].push_back(given);
  comm.group->changed.notify_all();
  return given;
}

// Receives data from rank `from`. Returns false if the communicator was aborted.
bool take(ncclComm& comm, std::unique_lock<std::mutex>& lock, int from, void* to, size_t bytes, bool collective) {
  Group& group = *comm.group;
  auto& queue = group.given[{from, comm.rank}];
  ++waiting;
  group.changed.wait(lock, [&] { return comm.aborted || !queue.empty(); });
  --waiting;
  if (comm.aborted) return false;
  const std::shared_ptr<Given> given = queue.front();
  queue.pop_front();
  if (given->bytes != bytes || given->collective != collective) {
    fail(comm, ncclInvalidUsage,
         "rank " + std::to_string(from) + " gives " + std::to_string(given->bytes) + " bytes, rank " + std::to_string(comm.rank) +
             " takes " + std::to_string(bytes));
  } else {
    lock.unlock();
    {
      const emulated_cuda::Running running;
      std::memmove(to, given->from, bytes);
      emulated_cuda::memory_written(to, bytes);
    }
    lock.lock();
  }
  given->taken = true;
  group.changed.notify_all();
  return true;
}

// Carries out all operations of a group call on one stream: sends everything, then receives everything, then waits until peers received.
void carry_out(ncclComm& comm, const std::vector<Operation>& operations) {
  Group& group = *comm.group;
  std::unique_lock lock(group.mutex);
  std::vector<std::shared_ptr<Given>> given;
  for (const Operation& op : operations) {
    if (op.kind == Operation::Kind::send) given.push_back(give(comm, op.peer, op.from, op.bytes, false));
    for (int r = 0; op.kind == Operation::Kind::all_gather && r < group.ranks; ++r) given.push_back(give(comm, r, op.from, op.bytes, true));
  }
  for (const Operation& op : operations) {
    if (op.kind == Operation::Kind::receive && !take(comm, lock, op.peer, op.to, op.bytes, false)) return;
    for (int r = 0; op.kind == Operation::Kind::all_gather && r < group.ranks; ++r) {
      auto* to = static_cast<std::byte*>(op.to) + static_cast<size_t>(r) * op.bytes;
      if (!take(comm, lock, r, to, op.bytes, true)) return;
    }
  }
  ++waiting;
  group.changed.wait(lock, [&] {
    if (comm.aborted) return true;
    for (const auto& one : given) {
      if (!one->taken) return false;
    }
    return true;
  });
  --waiting;
}

// Allocates GPU memory for the communicator. Returns whether the GPU had enough.
bool take_memory(ncclComm& comm, size_t bytes) {
  void* memory = nullptr;
  if (cudaMalloc(&memory, bytes) != cudaSuccess) return false;
  comm.memory.push_back(memory);
  return true;
}
void free_memory(ncclComm& comm) {
  for (void* memory : comm.memory) cudaFree(memory);
  comm.memory.clear();
}

void begin(ncclComm* comm) {
  for (auto& [stream, operations] : comm->asked) {
    size_t bytes = 0;  // the number of bytes to receive; sending takes no simulated time
    for (const Operation& op : operations) {
      if (op.kind == Operation::Kind::receive) bytes += op.bytes;
      if (op.kind == Operation::Kind::all_gather) bytes += op.bytes * static_cast<size_t>(comm->group->ranks - 1);
    }
    const emulated_cuda::Cost cost = emulated_cuda::cost_of_copy(emulated_cuda::Engine::between_gpus, bytes);
    emulated_cuda::enqueue(
        stream, "ncclKernel", [comm, all = std::move(operations)] { carry_out(*comm, all); }, cost);
  }
  comm->asked.clear();
}

ncclResult_t end_group() {
  std::set<ncclComm_t> comms;
  for (auto& [where, operations] : std::exchange(group_asked, {})) {
    where.first->asked.emplace_back(where.second, std::move(operations));
    comms.insert(where.first);
  }
  ncclResult_t result = planted("ncclGroupEnd");
  if (result != ncclSuccess) return result;
  for (ncclComm* comm : comms) {
    if (comm->blocking) {
      begin(comm);
    } else {
      comm->looks_until_begun = 2;
      result = ncclInProgress;
    }
  }
  return result;
}

ncclResult_t ask(const char* function, ncclComm_t comm, cudaStream_t stream, Operation operation) {
  if (const ncclResult_t result = planted(function); result != ncclSuccess) return result;
  {
    const std::lock_guard lock(comm->group->mutex);
    const bool busy = !comm->ready || comm->looks_until_begun > 0;
    const int most = operation.kind == Operation::Kind::all_gather ? 1 : comm->group->ranks;
    if (busy || comm->aborted || comm->finalized) return ncclInvalidUsage;
    if (operation.peer < 0 || operation.peer >= most) return ncclInvalidArgument;
  }
  const bool collective = operation.kind == Operation::Kind::all_gather;
  if (comm->pairs.insert(collective ? kCollective : operation.peer).second &&
      !take_memory(*comm, collective ? emulated_cuda::kNcclCollectiveBytes : emulated_cuda::kNcclPairBytes))
    return ncclUnhandledCudaError;
  const std::pair where{comm, stream};
  if (group_asked.empty() || group_asked.back().first != where) group_asked.push_back({where, {}});
  group_asked.back().second.push_back(operation);
  return group_depth > 0 ? ncclSuccess : end_group();
}

// Keeps aborted communicators forever, since work on streams may still refer to them.
std::vector<std::unique_ptr<ncclComm>>& aborted = *new std::vector<std::unique_ptr<ncclComm>>;  // protected by registry_mutex

// Returns whether all ranks of the communicator have arrived. The caller holds the group's mutex.
bool look_for_all(ncclComm& comm) {
  Group& group = *comm.group;
  if (group.twice) fail(comm, ncclInvalidUsage, "Duplicate GPU detected");
  if (static_cast<int>(group.gpus.size()) < group.ranks && comm.error == ncclSuccess) return false;
  comm.ready = true;
  return true;
}

}  // namespace

ncclResult_t ncclGetVersion(int* version) {
  *version = 22809;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (const ncclResult_t result = planted("ncclGetUniqueId"); result != ncclSuccess) return result;
  const std::lock_guard lock(registry_mutex);
  *id = {};
  std::memcpy(id->internal, &next_id, sizeof next_id);
  registry[next_id++] = std::make_shared<Group>();
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (const ncclResult_t result = planted("ncclCommInitRankConfig"); result != ncclSuccess) return result;
  if (rank < 0 || rank >= ranks) return ncclInvalidArgument;
  std::shared_ptr<Group> group;
  {
    const std::lock_guard lock(registry_mutex);
    int number = 0;
    std::memcpy(&number, id.internal, sizeof number);
    const auto found = registry.find(number);
    if (found == registry.end()) return ncclInvalidArgument;
    group = found->second;
    ++alive;
    most_blocks = config ? config->maxCTAs : INT_MIN;
  }
  auto* made = new ncclComm;
  made->group = group, made->rank = rank, made->blocking = !config || config->blocking != 0;
  int gpu = 0;
  cudaGetDevice(&gpu);
  take_memory(*made, emulated_cuda::kNcclBytes);
  std::unique_lock lock(group->mutex);
  group->ranks = ranks;
  for (const auto& [other, its] : group->gpus) group->twice |= its == gpu;
  group->gpus[rank] = gpu;
  group->changed.notify_all();
  *comm = made;
  if (!made->blocking) return ncclInProgress;
  group->changed.wait(lock, [&] { return look_for_all(*made); });
  return made->error;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const std::lock_guard lock(comm->group->mutex);
  if (comm->aborted || std::exchange(comm->finalized, true)) return ncclInvalidUsage;
  ++comm->group->finalized;
  comm->group->changed.notify_all();
  return comm->blocking ? ncclSuccess : ncclInProgress;
}

// Before the call, streams must have completed all work of the communicator, as NCCL requires, since that work refers to it.
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  {
    const std::lock_guard lock(registry_mutex);
    --alive;
  }
  free_memory(*comm);
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  {
    std::unique_lock lock(registry_mutex);
    abort_changed.wait(lock, [] { return !abort_blocks; });
  }
  {
    const std::lock_guard lock(comm->group->mutex);
    comm->aborted = true;
    comm->group->changed.notify_all();
  }
  free_memory(*comm);
  const std::lock_guard lock(registry_mutex);
  --alive;
  aborted.emplace_back(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  if (const ncclResult_t result = planted("ncclCommGetAsyncError"); result != ncclSuccess) {
    const std::lock_guard lock(comm->group->mutex);
    fail(*comm, ncclRemoteError, "planted");
  }
  std::unique_lock lock(comm->group->mutex);
  const bool all_came = look_for_all(*comm);
  *error = comm->error;
  if (comm->error != ncclSuccess) return ncclSuccess;
  const bool ends = comm->finalized && comm->group->finalized < comm->group->ranks;
  if (!all_came || ends || (comm->looks_until_begun > 0 && --comm->looks_until_begun > 0)) {
    *error = ncclInProgress;
    return ncclSuccess;
  }
  lock.unlock();
  begin(comm);
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  static const char* const kTexts[] = {"no error",
                                       "unhandled cuda error",
                                       "unhandled system error",
                                       "internal error",
                                       "invalid argument",
                                       "invalid usage",
                                       "remote process exited or there was a network error",
                                       "NCCL operation in progress"};
  return result < ncclNumResults ? kTexts[result] : "unknown result code";
}

const char* ncclGetLastError(ncclComm_t comm) { return comm ? comm->said.c_str() : ""; }

ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t, int peer, ncclComm_t comm, cudaStream_t stream) {
  return ask("ncclSend", comm, stream, {Operation::Kind::send, from, nullptr, count, peer});
}
ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t, int peer, ncclComm_t comm, cudaStream_t stream) {
  return ask("ncclRecv", comm, stream, {Operation::Kind::receive, nullptr, to, count, peer});
}
ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t, ncclComm_t comm, cudaStream_t stream) {
  return ask("ncclAllGather", comm, stream, {Operation::Kind::all_gather, from, to, count, 0});
}
ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() { return --group_depth > 0 ? ncclSuccess : end_group(); }

namespace emulated_cuda {

int nccl_communicators() {
  const std::lock_guard lock(registry_mutex);
  return alive;
}
void block_nccl_abort(bool blocks) {
  const std::lock_guard lock(registry_mutex);
  abort_blocks = blocks;
  abort_changed.notify_all();
}
int nccl_most_blocks() {
  const std::lock_guard lock(registry_mutex);
  return most_blocks;
}
int nccl_waiting() { return waiting; }

}  // namespace emulated_cuda
