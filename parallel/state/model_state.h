// Stores a model's weights, gradient accumulators and optimizer state. Each group has one blob (tiles of equal size) per kind of data, in
// the tier of that data. All data on nvme lies in one store, with checksums, and with generations (complete copies of weights and state)
// that remain when the process ends. This class stamps everything that leaves memory with a checksum, and verifies it when it comes back.
// Thread safety is that of Blob, except that publish(), scan(), fill() and commit() are called only while no instructions run; commit() is
// also called on the optimizer thread.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "device/memory_pool.h"
#include "offload/nvme_store.h"
#include "offload/staging_ring.h"
#include "parallel/comm/communicator.h"
#include "parallel/plan/plan.h"
#include "parallel/state/update_stream.h"

namespace spillway::parallel {

class RankExchange;

/// States where a rank's memory comes from, and with which ranks it communicates. The members from `engine` to `durability` are needed only
/// if the plan uses nvme. No other run or rank may use the scratch folders.
struct Resources {
  MemoryPool* device = nullptr;
  MemoryPool* host = nullptr;
  ThreadPool* threads = nullptr;
  offload::IoEngine* engine = nullptr;
  std::vector<offload::StripePath> scratch;
  std::string run_id;
  offload::Durability durability = offload::Durability::checkpoint;
  Communicator* data_ranks = nullptr;      // connects the data-parallel ranks; null if there is only one
  Communicator* pipeline_ranks = nullptr;  // connects the pipeline ranks; null if there is only one
  u64 newest_generation = ~u64{0};         // the newest generation (version of the state) that may be recovered from nvme
  bool new_store = false;                  // true: nothing is recovered, and an existing store is set aside
  int gpu = 0;                             // if a GPU computes: its index; `device` is memory of this GPU
  Tf32 tf32;                               // if a GPU computes: for which work it uses TF32
  RankExchange* gpu_exchange = nullptr;    // the exchange from GPU to GPU, if the plan uses one
};

class ModelState {
 public:
  /// Allocates everything that the plan stores. If a run with the same id died and has left its state on nvme, finds that state instead
  /// (recovered()). New memory is undefined until fill(). Throws Error(refused) if a budget is exceeded or disk space is missing, and
  /// Error(data) if a newer version of the program wrote the store.
  ModelState(const Plan& plan, const Resources& resources);

  /// Returns the record of the last commit of a run that died, if the plan keeps all weights and optimizer state
  /// on nvme and they were found. Nothing needs to be loaded then. Returns nothing otherwise.
  const std::optional<std::string>& recovered() const { return recovered_; }
  /// Returns why nothing was recovered. The text is empty if something was recovered, or if the plan stores nothing on nvme.
  std::string why_not_recovered() const;
  /// Returns NvmeStore::moved(): one line on the files that were moved when the store was opened. The line is usually empty.
  std::string store_moved() const { return store_ ? store_->moved() : ""; }
  /// Reads everything that was recovered and verifies it. Returns a text about what differs from what was written, or an empty text if
  /// nothing does. If something differs, a restart no longer finds this state. Throws Error(io) if bytes cannot be read.
  std::string damage_of_recovered();
  /// Discards the state that was recovered, so that fill() may write.
  void forget_recovered();

  offload::Blob& weights(u16 group) { return *weights_[group]; }
  /// Returns the gradient accumulator that a block has for a parameter group. It must be stored in a tier (Plan::gradient_rests).
  offload::Blob& gradients(u16 group, u8 use) { return *gradients_.at({group, use}); }
  /// Returns the optimizer state of the group, or null if the group has none (Plan::has_state).
  offload::Blob* optimizer(u16 group) { return optimizer_[group].get(); }
  /// Returns the blob for a block's activations that travel (Scheduling::activations_travel). It has Scheduling::spilled_tiles() tiles for
  /// each of the Plan::live micro-batches.
  offload::Blob& activations(u16 block) { return *activations_.at(block); }

  /// Returns the generation (number of the copy of the state) that readers see. A step writes the next one. In a blob with room for only
  /// one generation (one slot), both are the same bytes.
  u64 generation() const { return generation_; }
  void publish() { ++generation_; }

  /// read() and write() move a range of a blob as Blob does. In addition they wait until the move is done, verify what was read, and stamp
  /// what is written. read() and write() return the microseconds that the move took.
  double read(offload::Blob& blob, TileRange range, std::span<std::byte> into);
  double write(offload::Blob& blob, TileRange range, std::span<const std::byte> from);
  /// Verifies the checksums of bytes that were read from a blob. If they do not match, reads the bytes once more into the same place, and
  /// throws if they still do not match. If the bytes belong to a committed generation (copy of the state), the store is then invalidated
  /// too, so that a restart continues from the checkpoint. An I/O error alone does not invalidate the store.
  void verify(offload::Blob& blob, TileRange range, u64 generation, std::span<std::byte> bytes);
  /// Returns a text about bytes that matched only when verify() read them again: which
  /// bytes, and how often since the last call. The text is usually empty.
  std::string take_rereads();

  /// Commits a generation (copy of the state) whose writes to nvme have all completed. A restart then finds this generation, with `record`.
  /// Does nothing unless all weights and optimizer state lie on nvme.
  void commit(u64 generation, std::string_view record);

  /// scan() passes all tiles of a group that this rank holds to `body`, in order and a few at a time. `body` gets their weights and, where
  /// this rank also holds it, their optimizer state (otherwise an empty span). The bytes lie in place or in the staging ring. fill() passes
  /// memory of the same layout, and `body` must write all of it. These functions serve loading, checkpoints and tests.
  using Scan = std::function<void(TileRange, std::span<const std::byte> weights, std::span<const std::byte> state)>;
  using Fill = std::function<void(TileRange, std::span<std::byte> weights, std::span<std::byte> state)>;
  void scan(u16 group, const Scan& body);
  /// Scans only `ranges`, in a generation (copy of the state) that still exists. If the data has to be staged, no range may be longer than
  /// a staging buffer.
  void scan(u16 group, std::span<const TileRange> ranges, u64 generation, const Scan& body);
  /// Scans only the weights of `tiles`.
  void scan_weights(u16 group, TileRange tiles, const Scan& body);
  void fill(u16 group, const Fill& body);

  /// Returns the queues for copies to and from the GPU, or null if the CPU computes.
  const offload::GpuCopyQueues* queues() const { return queues_ ? &*queues_ : nullptr; }
  /// whole() and whole_on_gpu() return the memory of Plan::whole_bytes and Plan::whole_gpu_bytes, for the updates of parameters that are
  /// updated as a whole. Used by the optimizer thread.
  std::byte* whole() const { return whole_.data(); }
  std::byte* whole_on_gpu() const { return whole_on_gpu_.data(); }
  /// Returns the stream of updates that the GPU makes on tiles from elsewhere, or null if the plan has none. Used by the optimizer thread.
  UpdateStream* update_stream() { return update_stream_ ? &*update_stream_ : nullptr; }
  offload::StagingRing* staging() { return staging_ ? &*staging_ : nullptr; }
  offload::Traffic& traffic() { return traffic_; }
  /// Returns the size of the store's files, or 0 if nothing lies on nvme.
  i64 nvme_bytes() const { return store_ ? store_->bytes() : 0; }

 private:
  struct Piece;
  void open_store();
  void make_gradients();
  void make_activations();
  std::unique_ptr<offload::Blob> make(Tier tier, const std::string& what, TileRange tiles, i64 tile_bytes, int slots, bool persistent);
  std::vector<TileRange> chunks(u16 group) const;
  std::vector<TileRange> pieces(TileRange tiles, bool staged) const;
  bool holds_state(u16 group, TileRange range) const;
  enum class Kinds : u8 { all, weights };
  Piece open(u16 group, TileRange range, u64 generation, Kinds kinds);
  void scan(u16 group, std::span<const TileRange> ranges, u64 generation, Kinds kinds, const Scan& body);

  const Plan& plan_;
  const Resources resources_;
  std::optional<offload::GpuCopyQueues> queues_;
  offload::Traffic traffic_;
  std::optional<offload::NvmeStore> store_;
  std::mutex store_mutex_;  // guards commits, invalidation and the two members declared below
  i64 rereads_ = 0;
  std::string last_reread_;
  std::optional<std::string> recovered_;
  std::vector<std::unique_ptr<offload::Blob>> weights_, optimizer_;
  std::map<std::pair<u16, u8>, std::unique_ptr<offload::Blob>> gradients_;
  std::map<u16, std::unique_ptr<offload::Blob>> activations_;
  std::optional<offload::StagingRing> staging_;
  Allocation whole_, whole_on_gpu_;
  std::optional<UpdateStream> update_stream_;
  u64 generation_ = 0;
};

}  // namespace spillway::parallel
