// Sets stores aside: files that a dead run left on the --nvme paths and that this run cannot use are not deleted. Each file moves into a
// folder next to its own folder, named by the store's id. The files move back when a later run can use their store. A crash between two of
// these renames loses nothing: all files of a store share one id, so the next start moves the remaining files to the same place. Used by
// NvmeStore alone.
#pragma once
#include <filesystem>
#include <vector>

#include "offload/nvme_store.h"

namespace spillway::offload {

/// Clears the description's paths. Files that may hold a commit move aside, damaged files under the id that their header seems to name.
/// Only two kinds of files are removed: those never written to, and those of an undamaged store of this format without a commit that a
/// restart could use. Returns the folders that the files moved to. Errors: Error(io), Error(usage) if a path is not a regular file;
/// Error(data) if a newer program's file lies on any path, and then nothing has moved.
std::vector<std::filesystem::path> set_aside(const StoreDescription& description);

/// Throws Error(data) if a newer program's file lies on any of the description's paths.
void refuse_newer(const StoreDescription& description);

/// Returns the ids of the stores set aside next to the first path that have this program's format; the one written last comes first.
std::vector<u64> stores_aside(const StoreDescription& description);

/// Returns the same description with its paths changed to where store `store_id` was set aside.
StoreDescription aside(const StoreDescription& description, u64 store_id);

/// Moves the files of store `store_id` back to the description's paths. No store files may lie there. Errors: Error(io).
void bring_back(const StoreDescription& description, u64 store_id);

}  // namespace spillway::offload
