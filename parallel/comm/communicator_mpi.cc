// This file is the plug-in libspillway_mpi.so: it implements the Wire (wire.h) over MPI, and no other file includes MPI. One thread at a
// time calls MPI (SERIALIZED): first the thread that opens the communicator, then the communicator's own thread. A process initializes MPI
// once and finalizes it at its end.
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <list>
#include <map>
#include <memory>
#include <string>

#include "base/error.h"
#include "parallel/comm/communicator_mpi_open.h"
#include "parallel/comm/communicator_process.h"

namespace spillway::parallel {
namespace {

constexpr i64 kLargestBytes = i64{1} << 30;  // largest number of bytes of one MPI call, whose counts are of type int
constexpr i64 kPageBytes = 4096;
constexpr int kLetterTag = 0;
constexpr int kTriesToCancel = 1000;

void check(int status, const char* call) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(status, text, &length);
  throw Error(ErrorCode::io, std::string("[mpi] expected ") + call + " to succeed, got " + text);
}

// Keeps MPI initialized from the first communicator to the end of the process. If the ranks could not close a world together, MPI is not
// finalized, and mpirun reports that.
class Session {
 public:
  void begin() {
    int is_there = 0, level = 0;
    check(MPI_Initialized(&is_there), "MPI_Initialized");
    if (is_there) return;
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level), "MPI_Init_thread");
    if (level < MPI_THREAD_SERIALIZED)
      throw Error(ErrorCode::usage, "[mpi] expected an MPI library with MPI_THREAD_SERIALIZED, got one without it");
    begun_ = true;
  }
  void opened() { ++open_; }
  void closed() { --open_; }
  ~Session() {
    if (begun_ && open_ == 0) MPI_Finalize();
  }

 private:
  bool begun_ = false;
  int open_ = 0;
};

Session& session() {
  static Session session;
  return session;
}

class MpiWire final : public Wire {
 public:
  explicit MpiWire(int ranks_per_node) {
    session().begin();
    for (MPI_Comm* comm : {&letters_, &collective_, &messages_}) check(MPI_Comm_dup(MPI_COMM_WORLD, comm), "MPI_Comm_dup");
    check(MPI_Comm_rank(letters_, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(letters_, &size_), "MPI_Comm_size");
    share_memory(ranks_per_node);
    session().opened();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::span<std::byte> memory_of(int rank) override { return memory_[static_cast<size_t>(rank)]; }

  Ticket send(Channel channel, std::span<const std::byte> bytes, int to, int tag) override {
    return start(bytes.size(), [&](i64 begin, int count, MPI_Request* request) {
      check(MPI_Isend(bytes.data() + begin, count, MPI_BYTE, to, tag, comm_of(channel), request), "MPI_Isend");
    });
  }
  Ticket receive(Channel channel, std::span<std::byte> bytes, int from, int tag) override {
    return start(
        bytes.size(),
        [&](i64 begin, int count, MPI_Request* request) {
          check(MPI_Irecv(bytes.data() + begin, count, MPI_BYTE, from, tag, comm_of(channel), request), "MPI_Irecv");
        },
        true);
  }
  bool is_done(Ticket ticket) override {
    Travel& travel = travels_.at(ticket);
    int done = 0;
    check(MPI_Testall(static_cast<int>(travel.requests.size()), travel.requests.data(), &done, MPI_STATUSES_IGNORE), "MPI_Testall");
    if (done) travels_.erase(ticket);
    return done != 0;
  }
  void drop(Ticket ticket) override {
    Travel& travel = travels_.at(ticket);
    for (MPI_Request& request : travel.requests) {
      if (travel.is_receive && request != MPI_REQUEST_NULL) check(MPI_Cancel(&request), "MPI_Cancel");
    }
    for (int k = 0; k < kTriesToCancel; ++k) {
      if (is_done(ticket)) return;
    }
  }

  void post(int to, std::vector<std::byte> letter) override {
    posted_.push_back({std::move(letter), MPI_REQUEST_NULL});
    Letters& last = posted_.back();
    check(MPI_Isend(last.bytes.data(), static_cast<int>(last.bytes.size()), MPI_BYTE, to, kLetterTag, letters_, &last.request),
          "MPI_Isend");
  }
  std::optional<Letter> next_letter() override {
    forget_posted();
    int arrived = 0, count = 0;
    MPI_Message message;
    MPI_Status status;
    check(MPI_Improbe(MPI_ANY_SOURCE, kLetterTag, letters_, &arrived, &message, &status), "MPI_Improbe");
    if (!arrived) return std::nullopt;
    check(MPI_Get_count(&status, MPI_BYTE, &count), "MPI_Get_count");
    Letter letter{status.MPI_SOURCE, std::vector<std::byte>(static_cast<size_t>(count))};
    check(MPI_Mrecv(letter.bytes.data(), count, MPI_BYTE, &message, MPI_STATUS_IGNORE), "MPI_Mrecv");
    return letter;
  }
  bool all_posted() override {
    forget_posted();
    return posted_.empty();
  }

  void close() override {
    check(MPI_Win_unlock_all(window_), "MPI_Win_unlock_all");
    check(MPI_Win_free(&window_), "MPI_Win_free");
    for (MPI_Comm* comm : {&node_, &letters_, &collective_, &messages_}) check(MPI_Comm_free(comm), "MPI_Comm_free");
    session().closed();
  }

 private:
  struct Travel {
    std::vector<MPI_Request> requests;
    bool is_receive;
  };
  struct Letters {
    std::vector<std::byte> bytes;
    MPI_Request request;
  };

  MPI_Comm comm_of(Channel channel) const { return channel == Channel::collective ? collective_ : messages_; }

  template <class Start>
  Ticket start(size_t bytes, Start start, bool is_receive = false) {
    Travel travel{{}, is_receive};
    for (i64 begin = 0; begin < static_cast<i64>(bytes) || travel.requests.empty(); begin += kLargestBytes) {
      travel.requests.push_back(MPI_REQUEST_NULL);
      start(begin, static_cast<int>(std::min(kLargestBytes, static_cast<i64>(bytes) - begin)), &travel.requests.back());
    }
    travels_.emplace(++tickets_, std::move(travel));
    return tickets_;
  }

  void forget_posted() {
    while (!posted_.empty()) {
      int done = 0;
      check(MPI_Test(&posted_.front().request, &done, MPI_STATUS_IGNORE), "MPI_Test");
      if (!done) return;
      posted_.pop_front();
    }
  }

  // Allocates the window of memory that the ranks of a node share. MPI aligns each rank's piece to 8 bytes only, so the memory that is used
  // begins at the next page within the piece, which is the same place for all processes.
  void share_memory(int ranks_per_node) {
    MPI_Comm shared;
    check(MPI_Comm_split_type(letters_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &shared), "MPI_Comm_split_type");
    check(MPI_Comm_split(shared, ranks_per_node > 0 ? rank_ / ranks_per_node : 0, rank_, &node_), "MPI_Comm_split");
    check(MPI_Comm_free(&shared), "MPI_Comm_free");
    void* mine = nullptr;
    const auto bytes = static_cast<MPI_Aint>(round_up(process_memory_bytes(), kPageBytes) + kPageBytes);
    check(MPI_Win_allocate_shared(bytes, 1, MPI_INFO_NULL, node_, &mine, &window_), "MPI_Win_allocate_shared");
    check(MPI_Win_lock_all(MPI_MODE_NOCHECK, window_), "MPI_Win_lock_all");
    memory_.resize(static_cast<size_t>(size_));
    for (const auto& [near, rank] : ranks_of_node()) {
      MPI_Aint size = 0;
      int unit = 0;
      void* begin = nullptr;
      check(MPI_Win_shared_query(window_, near, &size, &unit, &begin), "MPI_Win_shared_query");
      const auto address = reinterpret_cast<std::uintptr_t>(begin);
      auto* aligned = static_cast<std::byte*>(begin) + (round_up(static_cast<i64>(address), kPageBytes) - static_cast<i64>(address));
      memory_[static_cast<size_t>(rank)] = {aligned, static_cast<size_t>(process_memory_bytes())};
    }
    std::fill_n(memory_of(rank_).begin(), process_memory_bytes(), std::byte{});
    check(MPI_Barrier(node_), "MPI_Barrier");  // waits until all memory is zero, because no rank may read before
  }

  // Returns a map from each rank's number in this node to its rank in the world.
  std::map<int, int> ranks_of_node() const {
    int count = 0;
    check(MPI_Comm_size(node_, &count), "MPI_Comm_size");
    std::vector<int> ranks(static_cast<size_t>(count));
    check(MPI_Allgather(&rank_, 1, MPI_INT, ranks.data(), 1, MPI_INT, node_), "MPI_Allgather");
    std::map<int, int> by_number;
    for (int k = 0; k < count; ++k) by_number[k] = ranks[static_cast<size_t>(k)];
    return by_number;
  }

  MPI_Comm letters_ = MPI_COMM_NULL, collective_ = MPI_COMM_NULL, messages_ = MPI_COMM_NULL, node_ = MPI_COMM_NULL;
  MPI_Win window_ = MPI_WIN_NULL;
  int rank_ = 0, size_ = 0;
  std::vector<std::span<std::byte>> memory_;
  std::map<Ticket, Travel> travels_;
  Ticket tickets_ = 0;
  std::list<Letters> posted_;
};

}  // namespace
}  // namespace spillway::parallel

extern "C" __attribute__((visibility("default"))) spillway::parallel::Communicator* spillway_open_mpi(
    const spillway::parallel::MpiOptions& options) {
  using namespace spillway::parallel;
  return make_process_communicator(std::make_unique<MpiWire>(options.ranks_per_node), options.timeout_s).release();
}
