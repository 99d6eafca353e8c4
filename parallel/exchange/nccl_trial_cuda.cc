// Tests whether ranks reach each other over NCCL, before a run depends on NCCL.
#include "parallel/exchange/nccl_communicator_cuda.h"
#include "parallel/exchange/nccl_exchange.h"

#ifdef SPILLWAY_HAS_NCCL
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "base/error.h"
#include "device/cuda_handle.h"
#include "device/memory_pool.h"

namespace spillway::parallel {
namespace {

constexpr i64 kEachBytes = 256 * kKiB;  // the bytes of one message in the trial: about the size of messages in a run

std::byte byte_of(i64 rank, i64 i) { return static_cast<std::byte>((rank * 31 + i * 7) % 251 + 1); }

i64 free_bytes() {
  size_t free = 0, total = 0;
  cuda_check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return static_cast<i64>(free);
}

NcclTrial exchange_once(const ncclUniqueId& id, const NcclCommunicator::Place& place) {
  const i64 bytes = place.ranks * kEachBytes, mine = place.rank * kEachBytes;
  std::vector<std::byte> host(static_cast<size_t>(bytes));
  for (i64 i = 0; i < kEachBytes; ++i) host[static_cast<size_t>(mine + i)] = byte_of(place.rank, i);
  use_device(place.gpu);
  MemoryPool pool("device", bytes, "", gpu_memory(place.gpu.index, bytes));
  const Allocation all = pool.allocate(bytes, "a first exchange over NCCL");
  const GpuQueue queue(place.gpu);
  const i64 free_before = free_bytes();
  NcclCommunicator ranks(id, place);
  queue.copy(all.data(), host.data(), bytes);
  ranks.group(
      [&](ncclComm_t comm) {
        ranks.check(nccl().all_gather(all.data() + mine, all.data(), kEachBytes, ncclUint8, comm, queue.handle()), "ncclAllGather");
      },
      Event());
  ranks.wait(queue, "a first exchange", Event());
  queue.copy(host.data(), all.data(), bytes);
  queue.wait();
  for (i64 i = 0; i < bytes; ++i) {
    if (host[static_cast<size_t>(i)] != byte_of(i / kEachBytes, i % kEachBytes))
      return {fmt::format("[nccl] expected to receive the bytes that rank {} sent, got other bytes", i / kEachBytes)};
  }
  const i64 free_between = free_bytes();
  const int next = (place.rank + 1) % place.ranks, previous = (place.rank + place.ranks - 1) % place.ranks;
  if (place.ranks > 1) ranks.connect({{next}, {previous}}, Event());
  const i64 pairs = next == previous ? 1 : 2;
  return {"", std::max<i64>(0, free_before - free_between), ceil_div(std::max<i64>(0, free_between - free_bytes()), pairs)};
}

}  // namespace

NcclTrial try_nccl(Communicator& ranks, int gpu, double timeout_s, const NcclStuck& stuck) {
  struct Told {
    ncclUniqueId id{};
    char why_not[256]{};
  } told;
  try {
    if (ranks.rank() == 0) told.id = make_nccl_id();
  } catch (const Error& error) {
    std::snprintf(told.why_not, sizeof told.why_not, "%s", error.what());
  }
  ranks.broadcast(std::as_writable_bytes(std::span(&told, 1)), 0).wait();
  if (told.why_not[0]) return {told.why_not};
  try {
    return exchange_once(told.id, {ranks.rank(), ranks.size(), Device::cuda(gpu), timeout_s, "all ranks", kNcclAbort_s, stuck});
  } catch (const Error& error) {
    return {error.what()};
  }
}

}  // namespace spillway::parallel

#else
namespace spillway::parallel {

NcclTrial try_nccl(Communicator&, int, double, const std::function<void(const std::string&)>&) { return {nccl_problem()}; }

}  // namespace spillway::parallel
#endif
