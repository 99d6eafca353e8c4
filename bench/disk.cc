// Benchmarks the disk traffic of the optimizer's step, without the optimizer: state tiles of gpt2-124m in bf16 (12 bytes per parameter)
// stream from one slot (copy of the state) of a store to the other through a staging ring of the size that a run with enough memory has,
// with four chunks read ahead and seven being written; every tile's checksum is verified and computed again. SPILLWAY_BENCH_DISK names the
// folder (default: the current one), SPILLWAY_BENCH_DISK_MIB the MiB in each direction. The store stays there for the next call, so that
// bench/disk_peers.py can take turns with other programs and each of them reads what was written to the drive before.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <deque>
#include <filesystem>
#include <span>

#include "base/error.h"
#include "device/memory_pool.h"
#include "offload/nvme_store.h"
#include "offload/staging_ring.h"

namespace {

using namespace spillway;
using offload::TileRange;

constexpr i64 kTileBytes = 3 * 64 * kKiB;  // bytes of a tile of state: master, m and v of 16 Ki parameters
constexpr i64 kChunkTiles = 16;            // tiles per chunk, as many as in parallel/plan/plan.cc
constexpr int kBuffers = 12;               // buffers of the staging ring, as many as in src/trainer/plan/planner.cc
constexpr size_t kReadAhead = 4;           // chunks read ahead, as many as in parallel/state/stepper.cc

i64 mebibytes_each_way() {
  const char* text = std::getenv("SPILLWAY_BENCH_DISK_MIB");
  return text ? std::atoll(text) : 2048;
}

struct Chunk {
  TileRange range;
  offload::StagingRing::Lease lease;
  Event io;
  std::span<std::byte> bytes() { return lease.bytes().first(static_cast<size_t>(range.count() * kTileBytes)); }
};

class Stream {
 public:
  Stream(offload::IoEngine& engine, const std::filesystem::path& folder)
      : store_(offload::NvmeStore::open_or_create(engine, traffic_, describe(folder))),
        blob_(store_.make_blob("optimizer state", {0, tiles_}, kTileBytes, 2, true)),
        ring_(MemoryPool::heap(), kBuffers, kChunkTiles * kTileBytes, "staging ring") {
    if (store_.last_commit()) return;
    // writes both copies of the state, because the first write to a disk block is slower than later ones
    for (const u64 generation : {0, 1}) fill(generation);
    store_.commit(1, "");
  }
  i64 bytes_each_way() const { return blob_->bytes(); }

  // Streams generation 1 of the state (a complete copy) to generation 2, which is never committed.
  void pass() {
    std::deque<Chunk> reading, writing;
    for (i64 next = 0; next < tiles_ || !reading.empty();) {
      while (next < tiles_ && reading.size() <= kReadAhead) {
        reading.push_back(start(next, writing));
        next = reading.back().range.end;
        reading.back().io = blob_->read(reading.back().range, 1, reading.back().bytes());
      }
      Chunk chunk = std::move(reading.front());
      reading.pop_front();
      chunk.io.wait();
      blob_->verify(chunk.range, 1, chunk.bytes());
      blob_->stamp(chunk.range, 2, chunk.bytes());
      chunk.io = blob_->write(chunk.range, 2, chunk.bytes());
      writing.push_back(std::move(chunk));
    }
    for (Chunk& chunk : writing) chunk.io.wait();
  }

 private:
  offload::StoreDescription describe(const std::filesystem::path& folder) const {
    offload::StoreDescription description;
    description.paths = {{folder}};
    description.run_id = "bench";
    description.data_bytes = 2 * tiles_ * kTileBytes;
    description.persistent_tiles = tiles_;
    return description;
  }
  Chunk start(i64 tile, std::deque<Chunk>& writing) {
    if (writing.size() + kReadAhead + 1 > static_cast<size_t>(kBuffers)) {
      writing.front().io.wait();
      writing.pop_front();
    }
    return {{tile, std::min(tiles_, tile + kChunkTiles)}, ring_.acquire(), Event::done()};
  }
  void fill(u64 generation) {
    u64 noise = generation + 1;
    for (i64 tile = 0; tile < tiles_; tile += kChunkTiles) {
      std::deque<Chunk> none;
      Chunk chunk = start(tile, none);
      const auto bytes = chunk.bytes();
      for (u64& word : std::span(reinterpret_cast<u64*>(bytes.data()), bytes.size() / 8)) {
        word = noise = noise * 6364136223846793005u + 1442695040888963407u;
      }
      blob_->stamp(chunk.range, generation, bytes);
      blob_->write(chunk.range, generation, bytes).wait();
    }
  }

  const i64 tiles_ = mebibytes_each_way() * kMiB / kTileBytes;
  offload::Traffic traffic_;
  offload::NvmeStore store_;
  std::unique_ptr<offload::Blob> blob_;
  offload::StagingRing ring_;
};

void state_tiles(benchmark::State& state, offload::IoEngineKind kind) {
  const char* folder = std::getenv("SPILLWAY_BENCH_DISK");
  try {
    const offload::ChosenEngine engine = offload::make_io_engine(kind);
    Stream stream(*engine.engine, folder ? folder : ".");
    for (auto _ : state) stream.pass();
    state.SetBytesProcessed(state.iterations() * 2 * stream.bytes_each_way());
  } catch (const Error& error) {
    state.SkipWithError(error.what());
  }
}

BENCHMARK_CAPTURE(state_tiles, io_uring, offload::IoEngineKind::io_uring)
    ->Iterations(1)
    ->MeasureProcessCPUTime()
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(state_tiles, pread, offload::IoEngineKind::pread)
    ->Iterations(1)
    ->MeasureProcessCPUTime()
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
