// What a dead run left on the --nvme paths and this one cannot use is not lost: its files move aside, into a folder beside each of the
// store's, named by its id, and come back when a run opens them that fits. Death between two of these renames loses nothing: all files of a
// store have one id, and so one place aside. Used by NvmeStore alone.
#pragma once
#include <filesystem>
#include <vector>

#include "offload/nvme_store.h"

namespace spillway::offload {

/// Clears the description's paths. Whatever may hold a commit moves aside, damaged files under the id that their header seems to name;
/// removed is only what was never written to and a whole store of this format without a commit that a restart could use. Returns the
/// folders they are in now. Errors: Error(io), Error(usage) for what is no file; Error(data) for a newer program's file on any path, and
/// nothing has moved.
std::vector<std::filesystem::path> set_aside(const StoreDescription& description);

/// Throws this Error(data).
void refuse_newer(const StoreDescription& description);

/// Stores set aside beside the first path, of this program's format; the one that was written last comes first.
std::vector<u64> stores_aside(const StoreDescription& description);

/// The same store where it was set aside.
StoreDescription aside(const StoreDescription& description, u64 store_id);

/// Moves its files back to the description's paths, which are clear. Errors: Error(io).
void bring_back(const StoreDescription& description, u64 store_id);

}  // namespace spillway::offload
