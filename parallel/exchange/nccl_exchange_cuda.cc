#include "parallel/exchange/nccl_exchange.h"

#include "base/error.h"
#include "parallel/exchange/nccl_watch_cuda.h"

#ifdef SPILLWAY_HAS_NCCL
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <exception>
#include <map>
#include <optional>
#include <set>

#include "device/cuda_handle.h"
#include "device/stream.h"
#include "parallel/comm/ordered_sum_gpu.h"
#include "parallel/comm/shared_end.h"
#include "parallel/layout/sharding.h"

namespace spillway::parallel {
namespace {

// The tags of messages with which two pipeline ranks coordinate their exchanges over NCCL. Messages with one of the first two tags have
// no bytes.
enum Tag : int { kSenderDone = 64, kReceiverDone, kId };

// One direction of messages between two pipeline ranks: from one rank to another.
struct Direction {
  int from, to;
  auto operator<=>(const Direction&) const = default;
};

bool sends_gpu_bytes(const Instruction& i) {
  return i.what != What::weights && (i.op == Op::SendActivation || i.op == Op::SendGradient || i.op == Op::SendTied);
}
bool receives_gpu_bytes(const Instruction& i) {
  return i.what != What::weights && (i.op == Op::ReceiveActivation || i.op == Op::ReceiveGradient || i.op == Op::ReceiveTied);
}

// Returns all directions in which this rank sends or receives, in an order that
// all ranks share. Each direction is in the lists of both its ranks.
std::set<Direction> directions_of(const Plan& plan) {
  std::set<Direction> all;
  const int me = plan.scheduling.pipeline.rank;
  const auto add = [&](const Program& program) {
    for (const auto& [name, list] : kLists) {
      for (const Instruction& i : program.*list) {
        if (sends_gpu_bytes(i)) all.insert({me, i.peer});
        if (receives_gpu_bytes(i)) all.insert({i.peer, me});
      }
    }
  };
  add(plan.train), add(plan.forward);
  if (plan.train_when_clipping) add(*plan.train_when_clipping);
  return all;
}

bool lies_on_gpu(const std::byte* at) {
  cudaPointerAttributes attributes{};
  cuda_check(cudaPointerGetAttributes(&attributes, at), "cudaPointerGetAttributes");
  return attributes.type == cudaMemoryTypeDevice;
}

template <class T>
std::span<std::byte> bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

// All-gathers in place: each rank's part of `all` goes to all ranks.
void gather_in_place(NcclCommunicator& ranks, CUstream_st* stream, std::byte* all, const Parts& bytes) {
  const auto me = static_cast<size_t>(ranks.rank());
  const auto count = [&](int r) { return static_cast<size_t>(bytes[static_cast<size_t>(r) + 1] - bytes[static_cast<size_t>(r)]); };
  bool equal = true;
  for (int r = 1; r < ranks.ranks(); ++r) equal &= count(r) == count(0);
  if (bytes.back() == 0) return;
  ranks.group([&](ncclComm_t comm) {
    if (equal) return ranks.check(nccl().all_gather(all + bytes[me], all, count(0), ncclUint8, comm, stream), "ncclAllGather");
    for (int r = 0; r < ranks.ranks(); ++r) {
      if (r == ranks.rank()) continue;
      if (count(ranks.rank()) > 0) ranks.check(nccl().send(all + bytes[me], count(ranks.rank()), ncclUint8, r, comm, stream), "ncclSend");
      if (count(r) > 0) ranks.check(nccl().receive(all + bytes[static_cast<size_t>(r)], count(r), ncclUint8, r, comm, stream), "ncclRecv");
    }
  });
}

class NcclExchange final : public RankExchange {
 public:
  NcclExchange(const Plan& plan, const NcclOptions& options)
      : gpu_(Device::cuda(options.gpu)), watch_(gpu_, [=](const std::string& why) {
          for (Communicator* ranks : {options.data_ranks, options.pipeline_ranks}) {
            if (ranks) ranks->abort(why);
          }
        }) {
    if (plan.scheduling.sharding.ranks > 1) meet_data_ranks(plan, options);
    if (plan.scheduling.pipeline.ranks > 1) meet_pipeline_ranks(plan, options);
  }

  // Finalizes the NCCL communicators. All ranks of a communicator must do so together, one communicator after another
  // in an order that all ranks share. If that is not certain, this rank gives its communicators up.
  ~NcclExchange() override {
    const bool well = watch_.stop() && std::uncaught_exceptions() == 0;
    if (data_ && !(well && all_come(*data_meetings_))) data_->give_up(kUnwinding);
    if (messages_ && !(well && all_come(*messages_->ranks))) {
      for (auto& [direction, channel] : channels_) channel->give_up();
    }
    data_.reset();
    while (!channels_.empty()) channels_.erase(channels_.begin());
  }

  void gather(const GpuQueue* queue, std::span<const std::byte> mine, std::byte* all, const Dealt& dealt) override {
    const auto me = static_cast<size_t>(data_->rank());
    watch_.queue(data_line_, *queue, "gathering", [&] {
      if (!lies_on_gpu(all)) return gather_to_host(*queue, mine, all, dealt);
      std::byte* own = all + dealt.tiles[me] * dealt.tile_bytes;
      if (own != mine.data()) queue->copy(own, mine.data(), std::ssize(mine));
      gather_on_gpu(*queue, all, dealt);
    });
  }

  void sum_part(const GpuQueue* queue, std::byte* all, DType dtype, const Dealt& dealt) override {
    watch_.queue(data_line_, *queue, "summing", [&] { sum_parts(*queue, all, dtype, dealt); });
  }

  void sum(const GpuQueue* queue, std::span<std::byte> all, DType dtype) override {
    const Sharding even{.ranks = data_->ranks()};
    Dealt dealt{{0}, kTileElems * size_of(dtype)};
    for (int r = 0; r < even.ranks; ++r) dealt.tiles.push_back(even.part(std::ssize(all) / dealt.tile_bytes, r).end);
    watch_.queue(data_line_, *queue, "summing", [&] {
      sum_parts(*queue, all.data(), dtype, dealt);
      gather_on_gpu(*queue, all.data(), dealt);
    });
  }

  void send(const GpuQueue* queue, std::span<const std::byte> bytes, int to, int) override {
    channels_.at({pipeline_rank_, to})->exchange(*queue, [&](ncclComm_t comm) {
      return nccl().send(bytes.data(), bytes.size(), ncclUint8, 1, comm, queue->handle());
    });
  }

  void receive(const GpuQueue* queue, std::span<std::byte> bytes, int from, int) override {
    channels_.at({from, pipeline_rank_})->exchange(*queue, [&](ncclComm_t comm) {
      return nccl().receive(bytes.data(), bytes.size(), ncclUint8, 0, comm, queue->handle());
    });
  }

  void settle() override { watch_.settle(); }

 private:
  static constexpr const char* kUnwinding = "this rank ends before the other ranks";

  // The communicator between the pipeline ranks' CPUs, over which all channels coordinate themselves.
  struct Meetings {
    explicit Meetings(std::unique_ptr<Communicator> group) : ranks(std::move(group)), end(ranks.get()) {}

    const std::unique_ptr<Communicator> ranks;
    SharedEnd end;
  };

  // A Channel is an NCCL communicator for one direction between two pipeline ranks; the sender
  // is NCCL's rank 0. On each of the two ranks a single thread uses the channel.
  class Channel {
   public:
    Channel(SharedEnd& meetings, NcclWatch& watch, Direction direction, int me, const NcclOptions& options)
        : meetings_(meetings), watch_(watch), sends_(me == direction.from), peer_(sends_ ? direction.to : direction.from) {
      const ncclUniqueId id = agreed_id();
      const Event peer = peer_done();
      nccl_.emplace(id, place_of(options, sends_ ? 0 : 1, 2, fmt::format("pipeline ranks {} and {}", direction.from, direction.to)), peer);
      nccl_->connect(sends_ ? NcclCommunicator::Links{{1}, {}} : NcclCommunicator::Links{{}, {0}}, peer);
      tell_peer();
      line_ = watch.add({&*nccl_, options.timeout_s, [this] { return peer_done(); }, [this] { tell_peer(); }});
    }

    template <class Call>
    void exchange(const GpuQueue& queue, Call&& call) {
      watch_.queue(line_, queue, "a message",
                   [&] { nccl_->group([&](ncclComm_t comm) { nccl_->check(call(comm), sends_ ? "ncclSend" : "ncclRecv"); }); });
    }
    void give_up() { nccl_->give_up(kUnwinding); }

   private:
    // Returns the id of the channel's NCCL communicator. The sender makes the id and sends it to the receiver.
    ncclUniqueId agreed_id() {
      ncclUniqueId id{};
      if (sends_) id = make_nccl_id();
      (sends_ ? meetings_.send(bytes_of(id), peer_, kId) : meetings_.receive(bytes_of(id), peer_, kId)).wait();
      return id;
    }
    Event peer_done() { return meetings_.receive({}, peer_, sends_ ? kReceiverDone : kSenderDone); }
    void tell_peer() { static_cast<void>(meetings_.send({}, peer_, sends_ ? kSenderDone : kReceiverDone)); }

    SharedEnd& meetings_;
    NcclWatch& watch_;
    const bool sends_;
    const int peer_;
    std::optional<NcclCommunicator> nccl_;
    size_t line_ = 0;
  };

  static NcclCommunicator::Place place_of(const NcclOptions& options, int rank, int ranks, const std::string& members) {
    return {rank, ranks, Device::cuda(options.gpu), options.timeout_s, members, options.abort_s, options.stuck};
  }

  // Returns true if all ranks call this function, so that all of them end in an orderly way. A rank that ends because of an error does
  // not make this call. So it neither waits for the other ranks nor makes them wait.
  static bool all_come(Communicator& ranks) noexcept {
    try {
      ranks.barrier().wait();
      return true;
    } catch (...) {
      return false;
    }
  }

  // The tag of messages by which data-parallel ranks tell a neighbour that an exchange is done. A collective completes only after every
  // rank has started it, so hearing from one neighbour is enough.
  static constexpr int kDone = 0;

  void meet_data_ranks(const Plan& plan, const NcclOptions& options) {
    data_meetings_ = options.data_ranks->split(0);
    buffer_ = options.device->allocate(plan.exchange_bytes, "between GPUs");
    ncclUniqueId id{};
    if (data_meetings_->rank() == 0) id = make_nccl_id();
    data_meetings_->broadcast(bytes_of(id), 0).wait();
    const Event others = neighbour_done();
    data_.emplace(id, place_of(options, data_meetings_->rank(), data_meetings_->size(), "the data-parallel ranks"), others);
    data_->connect(data_->all_links(), others);
    tell_neighbour();
    data_line_ = watch_.add({&*data_, options.timeout_s, [this] { return neighbour_done(); }, [this] { tell_neighbour(); }});
  }

  void meet_pipeline_ranks(const Plan& plan, const NcclOptions& options) {
    pipeline_rank_ = plan.scheduling.pipeline.rank;
    messages_.emplace(options.pipeline_ranks->split(0));
    for (const Direction& direction : directions_of(plan))
      channels_[direction] = std::make_unique<Channel>(messages_->end, watch_, direction, pipeline_rank_, options);
  }

  Event neighbour_done() {
    const int ranks = data_meetings_->size();
    return data_meetings_->receive({}, (data_meetings_->rank() + ranks - 1) % ranks, kDone);
  }
  void tell_neighbour() { static_cast<void>(data_meetings_->send({}, (data_meetings_->rank() + 1) % data_meetings_->size(), kDone)); }

  void gather_on_gpu(const GpuQueue& queue, std::byte* all, const Dealt& dealt) {
    gather_in_place(*data_, queue.handle(), all, dealt.parts(dealt.tile_bytes));
  }

  void gather_to_host(const GpuQueue& queue, std::span<const std::byte> mine, std::byte* all, const Dealt& dealt) {
    const auto me = static_cast<size_t>(data_->rank());
    const DealtPieces pieces(dealt, buffer_.bytes());
    for (i64 p = 0; p < pieces.count(); ++p) {
      const Parts parts = pieces.parts(p, dealt.tile_bytes);
      const TileRange own = pieces.of_rank(data_->rank(), p);
      queue.copy(buffer_.data() + parts[me], mine.data() + (own.begin - dealt.tiles[me]) * dealt.tile_bytes,
                 own.count() * dealt.tile_bytes);
      gather_in_place(*data_, queue.handle(), buffer_.data(), parts);
      for (int r = 0; r < dealt.ranks(); ++r) {
        const TileRange tiles = pieces.of_rank(r, p);
        queue.copy(all + tiles.begin * dealt.tile_bytes, buffer_.data() + parts[static_cast<size_t>(r)], tiles.count() * dealt.tile_bytes);
      }
    }
  }

  // Receives the next tiles of this rank's part from every other rank, each into a different place in the buffer, and sums them.
  void sum_parts(const GpuQueue& queue, std::byte* all, DType dtype, const Dealt& dealt) {
    const Stream kernels{.device = gpu_, .memory = &MemoryPool::heap(), .queue = queue.handle()};
    const StreamScope scope(kernels);
    const int me = data_->rank();
    const DealtPieces pieces(dealt, buffer_.bytes());
    const i64 stride = pieces.step() * dealt.tile_bytes;
    const auto bytes = [&](TileRange tiles) { return static_cast<size_t>(tiles.count() * dealt.tile_bytes); };
    for (i64 p = 0; p < pieces.count(); ++p) {
      const TileRange own = pieces.of_rank(me, p);
      data_->group([&](ncclComm_t comm) {
        for (int r = 0; r < dealt.ranks(); ++r) {
          const TileRange its = pieces.of_rank(r, p);
          if (r == me) continue;
          if (its.count() > 0)
            data_->check(nccl().send(all + its.begin * dealt.tile_bytes, bytes(its), ncclUint8, r, comm, queue.handle()), "ncclSend");
          if (own.count() > 0)
            data_->check(nccl().receive(buffer_.data() + r * stride, bytes(own), ncclUint8, r, comm, queue.handle()), "ncclRecv");
        }
      });
      ordered_sum_on_gpu(all + own.begin * dealt.tile_bytes, buffer_.data(), stride, me, dealt.ranks(), dtype,
                         static_cast<i64>(bytes(own)));
    }
  }

  const Device gpu_;
  NcclWatch watch_;
  size_t data_line_ = 0;
  std::unique_ptr<Communicator> data_meetings_;
  Allocation buffer_;
  std::optional<NcclCommunicator> data_;
  int pipeline_rank_ = 0;
  std::optional<Meetings> messages_;
  std::map<Direction, std::unique_ptr<Channel>> channels_;
};

}  // namespace

std::string nccl_problem() {
  try {
    static_cast<void>(nccl());
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

std::string nccl_version() {
  if (!nccl_problem().empty()) return "";
  int version = 0;
  static_cast<void>(nccl().version(&version));
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::unique_ptr<RankExchange> make_nccl_exchange(const Plan& plan, const NcclOptions& options) {
  require(plan.gpu_to_gpu, "[nccl] expected a plan with gpu_to_gpu, in which GPUs exchange data directly");
  return std::make_unique<NcclExchange>(plan, options);
}

}  // namespace spillway::parallel

#else
namespace spillway::parallel {

std::string nccl_problem() { return "this build has no NCCL, because nccl.h was not found when it was compiled (package libnccl-dev)"; }

std::string nccl_version() { return ""; }

std::unique_ptr<RankExchange> make_nccl_exchange(const Plan&, const NcclOptions&) {
  throw Error(ErrorCode::usage,
              "[nccl] expected a build with NCCL for communication between GPUs, got one without NCCL: " + nccl_problem());
}

}  // namespace spillway::parallel
#endif
