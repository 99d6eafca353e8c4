#include "trainer/node/failure.h"

#include <filesystem>
#include <new>

#include "base/path_error.h"

namespace spillway::trainer {

Failure failure_of(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const Error& error) {
    return {error.code(), error.what()};
  } catch (const std::bad_alloc&) {
    return {ErrorCode::io, "[memory] the system refused memory: lower --device-memory or --host-memory, or free memory on this node"};
  } catch (const std::filesystem::filesystem_error& error) {
    const Error told = error_of(error);
    return {told.code(), told.what()};
  } catch (const std::exception& error) {
    return {ErrorCode::bug, std::string("[bug] ") + error.what()};
  } catch (...) {
    return {ErrorCode::bug, "[bug] an exception of an unknown type"};
  }
}

}  // namespace spillway::trainer
