#include "offload/piece.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"
#include "offload/scratch_file.h"

namespace spillway::offload {
namespace {

// A piece fails after this many consecutive interruptions or temporary refusals. Each retry pauses for 1 ms, so that takes about a second.
constexpr int kMaxStalls = 1000;

std::string cure(int error_number) {
  switch (error_number) {
    case ENOSPC:
      return "free disk space or give another --nvme path";
    case EDQUOT:
      return "the disk quota is used up: free disk space or give another --nvme path";
    case EIO:
      return "the drive failed: see the kernel's log (dmesg) and give another --nvme path";
    case EINVAL:
      return "the filesystem refuses direct I/O of this alignment: give another --nvme path";
    case EAGAIN:
    case EBUSY:
      return "the system is short of I/O resources: try --io-engine pread";
    default:
      return "give another --nvme path or try --io-engine pread";
  }
}

std::exception_ptr io_error(const IoRequest& request, i64 offset, i64 bytes, const std::string& what) {
  return std::make_exception_ptr(
      Error(ErrorCode::io, fmt::format("[io] {} of {} bytes at offset {} of {}: {}", request.write ? "write" : "read", bytes, offset,
                                       request.file->path().string(), what)));
}

bool aligned(const IoRequest& r) {
  const auto address = static_cast<i64>(reinterpret_cast<std::uintptr_t>(r.buffer));
  return (r.offset | r.bytes | address) % kDirectAlignment == 0;
}

void check(const IoRequest& r) {
  require(r.file != nullptr, "[io] expected a file in the request");
  const auto where = [&] {
    return fmt::format("offset {}, {} bytes, buffer {} of {}", r.offset, r.bytes, fmt::ptr(r.buffer), r.file->path().string());
  };
  if (r.offset < 0 || r.bytes < 0 || r.bytes > r.file->bytes() - r.offset || (r.bytes > 0 && !r.buffer)) {
    throw Error(ErrorCode::bug, fmt::format("[io] expected a range inside the file's {} bytes, got {}", r.file->bytes(), where()));
  }
  if (r.file->direct() && !aligned(r)) {
    throw Error(ErrorCode::bug, fmt::format("[io] expected offset, size and address to be multiples of {} bytes for direct I/O, got {}",
                                            kDirectAlignment, where()));
  }
}

}  // namespace

SystemCalls& SystemCalls::real() {
  static SystemCalls system;
  return system;
}

class Request {
 public:
  Request(const IoRequest& asked, i64 pieces) : io(asked), pieces_(pieces) {}

  void piece_over(std::exception_ptr error) {
    if (error) {
      std::lock_guard lock(mutex_);
      if (!error_) error_ = std::move(error);
    }
    if (pieces_.fetch_sub(1) > 1) return;
    std::unique_lock lock(mutex_);
    std::exception_ptr first = std::exchange(error_, nullptr);
    lock.unlock();
    first ? event.fail(std::move(first)) : event.set();
  }

  const IoRequest io;
  Event event;

 private:
  std::atomic<i64> pieces_;
  std::mutex mutex_;
  std::exception_ptr error_;
};

Piece::Piece(std::shared_ptr<Request> request, i64 begin, i64 bytes)
    : request_(std::move(request)), offset_(request_->io.offset + begin), bytes_(bytes) {}

Transfer Piece::rest() const {
  const IoRequest& io = request_->io;
  return {io.file->descriptor(), io.write, offset_, bytes_, io.buffer + (offset_ - io.offset)};
}

Priority Piece::priority() const { return request_->io.priority; }

bool Piece::absorb(i64 result) {
  if (result > 0) return advance(result);
  if (result < 0) return retry_or_fail(static_cast<int>(-result));
  const IoRequest& io = request_->io;
  const char* what = io.write ? "the filesystem accepted no data: give another --nvme path"
                              : "unexpected end of file: another program truncated the file; keep other programs out of the --nvme path";
  request_->piece_over(io_error(io, offset_, bytes_, what));
  return true;
}

bool Piece::advance(i64 result) {
  i64 done = std::min(result, bytes_);
  // Direct I/O can only be resumed at an aligned offset, so an aligned block of the file that was transferred only in part is transferred
  // again.
  if (done < bytes_ && request_->io.file->direct()) done -= done % kDirectAlignment;
  if (done == 0) return retry_or_fail(EAGAIN);
  stalls_ = 0;
  offset_ += done;
  bytes_ -= done;
  if (bytes_ > 0) return false;
  request_->piece_over(nullptr);
  return true;
}

bool Piece::retry_or_fail(int error_number) {
  const bool passing = error_number == EINTR || error_number == EAGAIN;
  if (!passing || ++stalls_ > kMaxStalls) {
    fail(error_number);
    return true;
  }
  if (stalls_ > 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return false;
}

void Piece::fail(int error_number) {
  const std::string text = std::generic_category().message(error_number);
  request_->piece_over(io_error(request_->io, offset_, bytes_, fmt::format("{} (errno {}): {}", text, error_number, cure(error_number))));
}

void PieceQueue::push(Piece piece) { (piece.priority() == Priority::urgent ? urgent_ : normal_).push_back(std::move(piece)); }

std::optional<Piece> PieceQueue::pop() {
  if (empty()) return std::nullopt;
  std::deque<Piece>& from = urgent_.empty() ? normal_ : urgent_;
  std::optional<Piece> piece(std::move(from.front()));
  from.pop_front();
  return piece;
}

void PieceEngine::flush(const ScratchFile& file) {
  i64 result = 0;
  do {
    result = system_.flushed(file.descriptor(), ::fdatasync(file.descriptor()) == 0 ? 0 : -static_cast<i64>(errno));
  } while (result == -EINTR);
  if (result == 0) return;
  const auto error_number = static_cast<int>(-result);
  throw Error(ErrorCode::io, fmt::format("[io] fdatasync of {}: {} (errno {}): {}", file.path().string(),
                                         std::generic_category().message(error_number), error_number, cure(error_number)));
}

Event PieceEngine::submit(const IoRequest& request) {
  check(request);
  if (request.bytes == 0) return Event::done();
  auto shared = std::make_shared<Request>(request, ceil_div(request.bytes, kPieceBytes));
  Event event = shared->event;
  for (i64 at = 0; at < request.bytes; at += kPieceBytes) start(Piece(shared, at, std::min(kPieceBytes, request.bytes - at)));
  return event;
}

}  // namespace spillway::offload
