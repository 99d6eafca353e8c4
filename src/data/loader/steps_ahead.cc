#include "data/loader/steps_ahead.h"

#include "base/error.h"
#include "base/thread.h"

namespace spillway::data {

StepsAhead::~StepsAhead() {
  if (thread_.joinable()) thread_.join();
}

StepBatch StepsAhead::step(i64 cursor) {
  if (thread_.joinable()) thread_.join();
  const bool known = next_.valid() && next_cursor_ == cursor;
  StepBatch batch = known ? next_.get() : loader_.step(cursor);
  next_cursor_ = loader_.cursor_after(cursor);
  std::packaged_task<StepBatch()> make([this] {
    const Stream stream{Device::cpu(), nullptr, &memory_};
    const StreamScope scope(stream);
    return loader_.step(next_cursor_);
  });
  next_ = make.get_future();
  try {
    thread_ = start_thread(std::move(make));
  } catch (const Error&) {
    next_ = {};
  }
  return batch;
}

}  // namespace spillway::data
