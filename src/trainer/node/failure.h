// Turns an exception into an exit status and a text for the user. It is used where
// exceptions are finally caught, and by a rank that reports its failure to the other ranks.
#pragma once
#include <exception>
#include <string>

#include "base/error.h"

namespace spillway::trainer {

struct Failure {
  ErrorCode code = ErrorCode::bug;
  std::string text;
};
/// Returns an Error's own code and text. std::bad_alloc becomes Error(io), and filesystem errors
/// are translated by base/path_error.h. Any other exception is reported as a bug of this program.
Failure failure_of(const std::exception_ptr& exception);

}  // namespace spillway::trainer
