// Declares the part of NCCL that this project uses, between emulated GPUs whose ranks are threads of one process. Semantics
// follow the NCCL 2.28 user guide, strictly. Work requested from a non-blocking communicator begins only once somebody
// polls its state. A receive that does not match its send is an error, where NCCL itself may hang or overwrite memory. Two
// ranks on one GPU are refused. An operation waits for a missing peer until the communicator is aborted. A communicator
// takes GPU memory when it is made, for each pair of ranks when they first communicate, and at the first collective.
#pragma once
#include <climits>

#include "cuda_runtime_api.h"

#define NCCL_EMULATED 1
#define NCCL_UNIQUE_ID_BYTES 128

typedef struct ncclComm* ncclComm_t;
typedef struct {
  char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

typedef enum {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
  ncclNumResults = 8
} ncclResult_t;
typedef enum { ncclUint8 = 1 } ncclDataType_t;

typedef struct {
  int blocking, maxCTAs;
} ncclConfig_t;
#define NCCL_CONFIG_INITIALIZER \
  { INT_MIN, INT_MIN }

ncclResult_t ncclGetVersion(int* version);
ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error);
const char* ncclGetErrorString(ncclResult_t result);
const char* ncclGetLastError(ncclComm_t comm);
ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();
