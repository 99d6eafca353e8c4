// What an exception says to a user: the exit status and the text. Used where exceptions end, and where one rank tells the others.
#pragma once
#include <exception>
#include <string>

#include "base/error.h"

namespace spillway::app {

struct Failure {
  ErrorCode code = ErrorCode::bug;
  std::string text;
};
/// An Error's own; refused memory is Error(io); a path that cannot be looked at is what base/path_error.h makes of it; anything else is a
/// bug.
Failure failure_of(const std::exception_ptr& exception);

}  // namespace spillway::app
