#include "trainer/events/growing_file.h"

#include <span>

#include "base/error.h"

namespace spillway::trainer {

GrowingFile::GrowingFile(data::File file, i64 bytes, size_t most_waiting)
    : file_(std::move(file)), bytes_(bytes), most_waiting_(most_waiting) {}

GrowingFile::~GrowingFile() {
  if (waits()) write();
}

void GrowingFile::append(std::string_view piece) {
  if (waits() && waiting_.size() + piece.size() > most_waiting_) {
    write();
    if (waits()) {
      ++lost_;
      return;
    }
  }
  waiting_ += piece;
  write();
}

void GrowingFile::write() try {
  file_.write(bytes_, std::as_bytes(std::span(waiting_)));
  bytes_ += static_cast<i64>(waiting_.size());
  waiting_.clear();
} catch (const Error& error) {
  why_ = error.what();
}

}  // namespace spillway::trainer
