// Turns an exception into an exit status and a text for the user. Used where exceptions are finally caught, and where a rank reports its
// failure to the others.
#pragma once
#include <exception>
#include <string>

#include "base/error.h"

namespace spillway::trainer {

struct Failure {
  ErrorCode code = ErrorCode::bug;
  std::string text;
};
/// Returns an Error's own code and text. std::bad_alloc becomes Error(io), filesystem errors are translated by base/path_error.h, and
/// anything else is a bug.
Failure failure_of(const std::exception_ptr& exception);

}  // namespace spillway::trainer
