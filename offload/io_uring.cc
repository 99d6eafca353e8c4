// Implements the io_uring engine. One thread owns the ring. It takes pieces (parts of requests, at most 1 MiB each) from the queue into
// `queue_depth` slots, waits for completions, and resubmits what a short transfer has left. The completion queue has twice as many entries
// as there are slots, so it never overflows. The owner thread submits the pieces itself, because the kernel completes a request in the
// thread that submitted it. Any other thread would have to be scheduled first, and compute occupies all the cores. Threads that add
// requests wake the owner through an eventfd. Files and buffers are not registered with the kernel: the staging buffers lie in huge pages,
// and there the kernel spends 8.4 ms per GiB without registration and 8.0 ms with it.
#include <liburing.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/thread.h"
#include "offload/piece.h"

namespace spillway::offload {
namespace {

constexpr u64 kWoken = ~u64{0}, kIgnored = kWoken - 1;  // the io_uring user data of requests that belong to no piece of an I/O request
constexpr int kSubmitRetries = 1000;
constexpr long kDeafPauseNs = 10'000'000;

bool has_read_and_write(io_uring& ring) {
  io_uring_probe* probe = io_uring_get_probe_ring(&ring);
  if (!probe) return false;
  const bool both = io_uring_opcode_supported(probe, IORING_OP_READ) && io_uring_opcode_supported(probe, IORING_OP_WRITE);
  io_uring_free_probe(probe);
  return both;
}

class UringEngine final : public PieceEngine {
 public:
  /// Takes ownership of `ring` and of `wake`, an eventfd.
  UringEngine(const io_uring& ring, int wake, int queue_depth, SystemCalls& system)
      : PieceEngine(system), ring_(ring), wake_(wake), slots_(static_cast<size_t>(queue_depth)) {
    for (u64 slot = slots_.size(); slot-- > 0;) free_.push_back(slot);
    owner_ = start_thread([this] { own_ring(); });
  }

  ~UringEngine() override {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake();
    owner_.join();
    io_uring_queue_exit(&ring_);
    ::close(wake_);
  }

  std::string_view name() const override { return "io_uring"; }

 private:
  void start(Piece piece) override {
    bool asleep = false;
    {
      std::lock_guard lock(mutex_);
      pending_.push(std::move(piece));
      asleep = std::exchange(asleep_, false);
    }
    if (asleep) wake();
  }

  void wake() const {
    while (::eventfd_write(wake_, 1) != 0 && errno == EINTR) {
    }
  }

  // Only the thread that owns the ring calls the functions below.

  void own_ring() {
    listen();
    while (fill_slots()) wait();
  }

  // Moves waiting pieces into free slots. Returns false if all work is done and no more will come.
  bool fill_slots() {
    std::unique_lock lock(mutex_);
    while (!free_.empty() && !pending_.empty()) {
      Piece piece = std::move(*pending_.pop());
      lock.unlock();
      const u64 slot = free_.back();
      free_.pop_back();
      slots_[slot] = std::move(piece);
      submit_slot(slot);
      lock.lock();
    }
    if (stop_ && pending_.empty() && free_.size() == slots_.size()) return false;
    asleep_ = !free_.empty();  // while all slots are full, the owner looks at the queue after each completion and needs no wake-up
    return true;
  }

  // Asks the kernel to transfer what is left of the slot's piece. If the kernel refuses, the piece ends with an error.
  void submit_slot(u64 slot) {
    const int refusal = queue_slot(slot);
    if (refusal == 0) return;
    slots_[slot].fail(refusal);
    release(slot);
  }

  int queue_slot(u64 slot) {
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    if (!sqe) return EBUSY;
    const Transfer t = slots_[slot].rest();
    const auto bytes = static_cast<unsigned>(system_.bytes_to_request(t));
    const auto offset = static_cast<u64>(t.offset);
    t.write ? io_uring_prep_write(sqe, t.descriptor, t.buffer, bytes, offset)
            : io_uring_prep_read(sqe, t.descriptor, t.buffer, bytes, offset);
    return submit(sqe, slot);
  }

  // Asks the kernel to poll the eventfd, so that the next wake() makes a request complete, which ends the owner's wait.
  void listen() {
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    if (sqe) io_uring_prep_poll_add(sqe, wake_, POLLIN);
    deaf_ = !sqe || submit(sqe, kWoken) != 0;
  }

  int submit(io_uring_sqe* sqe, u64 user_data) {
    io_uring_sqe_set_data64(sqe, user_data);
    const int refusal = enter();
    if (refusal == 0) return 0;
    io_uring_prep_nop(sqe);  // the entry is queued already and would be submitted by the next call, so it is turned into a no-op
    io_uring_sqe_set_data64(sqe, kIgnored);
    return refusal;
  }

  // Submits the queued entries. Returns 0, or the errno with which the kernel kept refusing.
  int enter() {
    for (int tries = 0;; ++tries) {
      const int result = io_uring_submit(&ring_);
      if (result > 0 && io_uring_sq_ready(&ring_) == 0) return 0;
      const bool passing = result >= 0 || result == -EINTR || result == -EAGAIN || result == -EBUSY;
      if (!passing || tries == kSubmitRetries) return result >= 0 ? EBUSY : -result;
      if (result != -EINTR) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  // Waits for one completion and processes all completions that have arrived. If the ring itself fails, the
  // process must end: the kernel may still write to buffers, and their users could not be told.
  void wait() {
    __kernel_timespec soon{0, kDeafPauseNs};
    io_uring_cqe* cqe = nullptr;
    const int waited = io_uring_wait_cqe_timeout(&ring_, &cqe, deaf_ ? &soon : nullptr);
    if (waited == -ETIME) return listen();
    if (waited == -EINTR || waited == -EAGAIN) return;
    if (waited < 0) std::terminate();
    do {
      const u64 user_data = io_uring_cqe_get_data64(cqe);
      const i64 result = cqe->res;
      io_uring_cqe_seen(&ring_, cqe);
      if (user_data == kWoken) {
        hear();
      } else if (user_data != kIgnored) {
        digest(user_data, result);
      }
    } while (io_uring_peek_cqe(&ring_, &cqe) == 0);
  }

  void hear() {
    eventfd_t ignored = 0;
    ::eventfd_read(wake_, &ignored);
    listen();
  }

  void digest(u64 slot, i64 result) {
    Piece& piece = slots_[slot];
    piece.absorb(system_.completed(piece.rest(), result)) ? release(slot) : submit_slot(slot);
  }

  void release(u64 slot) {
    slots_[slot] = Piece();
    free_.push_back(slot);
  }

  io_uring ring_;
  const int wake_;            // an eventfd, by which other threads wake the owner thread
  std::vector<Piece> slots_;  // the pieces that the kernel is working on; the index is the request's user data
  std::vector<u64> free_;
  bool deaf_ = false;  // true if the kernel refused to poll the eventfd; the owner then looks at the queue again every kDeafPauseNs

  std::mutex mutex_;
  PieceQueue pending_;
  bool asleep_ = false;  // true while the owner waits and would not notice a new piece without wake()
  bool stop_ = false;
  std::thread owner_;
};

}  // namespace

std::unique_ptr<IoEngine> make_uring_engine(int queue_depth, SystemCalls& system, int& refusal) {
  refusal = system.refuse_io_uring();
  if (refusal != 0) return nullptr;
  io_uring ring{};
  // the queue has one entry more than there are slots, for the poll of the eventfd
  refusal = -io_uring_queue_init(static_cast<unsigned>(queue_depth) + 1, &ring, 0);
  if (refusal != 0) return nullptr;
  if (!has_read_and_write(ring)) {
    io_uring_queue_exit(&ring);
    refusal = ENOSYS;
    return nullptr;
  }
  const int wake = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake < 0) {
    refusal = errno;
    io_uring_queue_exit(&ring);
    return nullptr;
  }
  return std::make_unique<UringEngine>(ring, wake, queue_depth, system);
}

}  // namespace spillway::offload
