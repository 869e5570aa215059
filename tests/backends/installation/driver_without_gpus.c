/* An NVIDIA driver (libcuda.so.1) for CUDA 11.2 that finds no GPU. It has the functions without which MXNet's library is
   not loaded, and what CUDA's runtime asks for before any other. */

#define CUDA_SUCCESS 0
#define CUDA_ERROR_NO_DEVICE 100
#define CUDA_11_2 11020
#define WITHOUT_GPU(function) int function(void) { return CUDA_ERROR_NO_DEVICE; }

int cuDriverGetVersion(int *version)
{
    *version = CUDA_11_2;
    return CUDA_SUCCESS;
}

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
