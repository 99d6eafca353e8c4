// The io_uring engine. Submitters share one ring under a mutex; a piece holds one of `queue_depth` slots from its submission to its end, so
// the completion queue (twice as long) never overflows; the others wait in a queue, and whoever frees a slot submits the next. One reaper
// thread takes the completions and resumes short pieces in their slot. No registered files or buffers, no kernel polling: 1 MiB pieces
// saturate a drive without them.
#include <liburing.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "offload/piece.h"

namespace spillway::offload {
namespace {

constexpr u64 kStop = ~u64{0}, kIgnored = kStop - 1;  // user data of the no-operations
constexpr int kSubmitRetries = 1000;

bool has_read_and_write(io_uring& ring) {
  io_uring_probe* probe = io_uring_get_probe_ring(&ring);
  if (!probe) return false;
  const bool both = io_uring_opcode_supported(probe, IORING_OP_READ) && io_uring_opcode_supported(probe, IORING_OP_WRITE);
  io_uring_free_probe(probe);
  return both;
}

class UringEngine final : public PieceEngine {
 public:
  UringEngine(const io_uring& ring, int queue_depth, SystemCalls& system)
      : PieceEngine(system), ring_(ring), slots_(static_cast<size_t>(queue_depth)) {
    for (u64 slot = slots_.size(); slot-- > 0;) free_.push_back(slot);
    reaper_ = std::thread([this] { reap(); });
  }

  ~UringEngine() override {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [&] { return free_.size() == slots_.size() && pending_.empty(); });
    const bool stopped = submit_noop(kStop) == 0;
    lock.unlock();
    if (!stopped) std::terminate();  // the reaper cannot be told: going on would unmap the ring under it
    reaper_.join();
    io_uring_queue_exit(&ring_);
  }

  std::string_view name() const override { return "io_uring"; }

 private:
  void start(Piece piece) override {
    std::lock_guard lock(mutex_);
    pending_.push(std::move(piece));
    fill_slots();
  }

  void fill_slots() {
    while (!free_.empty() && !pending_.empty()) {
      const u64 slot = free_.back();
      free_.pop_back();
      slots_[slot] = std::move(*pending_.pop());
      submit_slot(slot);
    }
  }

  // Asks the kernel for what is left of the slot's piece; ends the piece when the kernel does not take it.
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
    io_uring_sqe_set_data64(sqe, slot);
    const int refusal = enter();
    if (refusal == 0) return 0;
    io_uring_prep_nop(sqe);  // it is still queued and would go with the next call: make it harmless
    io_uring_sqe_set_data64(sqe, kIgnored);
    return refusal;
  }

  int submit_noop(u64 user_data) {
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    if (!sqe) return EBUSY;
    io_uring_prep_nop(sqe);
    io_uring_sqe_set_data64(sqe, user_data);
    return enter();
  }

  // 0 or the errno with which the kernel went on refusing.
  int enter() {
    for (int tries = 0;; ++tries) {
      const int result = io_uring_submit(&ring_);
      if (result > 0 && io_uring_sq_ready(&ring_) == 0) return 0;
      const bool passing = result >= 0 || result == -EINTR || result == -EAGAIN || result == -EBUSY;
      if (!passing || tries == kSubmitRetries) return result >= 0 ? EBUSY : -result;
      if (result != -EINTR) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  void reap() {
    for (;;) {
      io_uring_cqe* cqe = nullptr;
      const int waited = io_uring_wait_cqe(&ring_, &cqe);
      if (waited == -EINTR || waited == -EAGAIN) continue;
      if (waited < 0) std::terminate();  // the ring itself is broken: the kernel may still write to buffers nobody can be told about
      const u64 user_data = io_uring_cqe_get_data64(cqe);
      const i64 result = cqe->res;
      io_uring_cqe_seen(&ring_, cqe);
      if (user_data == kStop) return;
      if (user_data != kIgnored) digest(user_data, result);
    }
  }

  void digest(u64 slot, i64 result) {
    Piece* piece = nullptr;
    {
      std::lock_guard lock(mutex_);  // orders this thread after the submitter's writes: the way through the kernel does not
      piece = &slots_[slot];
    }
    const bool over = piece->absorb(system_.completed(piece->rest(), result));
    std::lock_guard lock(mutex_);
    over ? release(slot) : submit_slot(slot);
    fill_slots();
  }

  void release(u64 slot) {
    slots_[slot] = Piece();
    free_.push_back(slot);
    if (free_.size() == slots_.size()) idle_.notify_all();  // under the lock: the destructor may be the one who waits
  }

  io_uring ring_;
  std::mutex mutex_;
  std::condition_variable idle_;
  std::vector<Piece> slots_;  // the pieces in the kernel's hands, by user data
  std::vector<u64> free_;
  PieceQueue pending_;
  std::thread reaper_;
};

}  // namespace

std::unique_ptr<IoEngine> make_uring_engine(int queue_depth, SystemCalls& system, int& refusal) {
  refusal = system.refuse_io_uring();
  if (refusal != 0) return nullptr;
  io_uring ring{};
  refusal = -io_uring_queue_init(static_cast<unsigned>(queue_depth), &ring, 0);
  if (refusal != 0) return nullptr;
  if (!has_read_and_write(ring)) {
    io_uring_queue_exit(&ring);
    refusal = ENOSYS;
    return nullptr;
  }
  return std::make_unique<UringEngine>(ring, queue_depth, system);
}

}  // namespace spillway::offload
