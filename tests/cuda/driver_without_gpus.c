/* An NVIDIA driver (libcuda.so.1) that finds no GPU. It has the functions without which MXNet's library is not loaded;
   CUDA's runtime asks for cuInit before any other. */

#define CUDA_ERROR_NO_DEVICE 100
#define WITHOUT_GPU(function) int function(void) { return CUDA_ERROR_NO_DEVICE; }

WITHOUT_GPU(cuInit)
WITHOUT_GPU(cuDeviceGet)
WITHOUT_GPU(cuDevicePrimaryCtxRetain)
WITHOUT_GPU(cuGetErrorString)
WITHOUT_GPU(cuGraphKernelNodeGetParams)
WITHOUT_GPU(cuGraphNodeGetType)
WITHOUT_GPU(cuLaunchKernel)
WITHOUT_GPU(cuModuleGetFunction)
WITHOUT_GPU(cuModuleLoadData)
WITHOUT_GPU(cuModuleLoadDataEx)
WITHOUT_GPU(cuModuleUnload)
