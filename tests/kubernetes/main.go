// The API server of Kubernetes with an etcd of its own, in one process.
//
// apiserver FOLDER PORT [ARGUMENT OF KUBE-APISERVER]...: etcd keeps its files in FOLDER and listens at PORT.
package main

import (
	"log"
	"net/url"
	"os"

	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() {
	where, err := url.Parse("http://127.0.0.1:" + os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	config := embed.NewConfig()
	config.Dir = os.Args[1]
	config.LogLevel = "error"
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{*where}, []url.URL{*where}
	config.ListenPeerUrls = nil
	store, err := embed.StartEtcd(config)
	if err != nil {
		log.Fatal(err)
	}
	<-store.Server.ReadyNotify()
	os.Args = append([]string{os.Args[0], "--etcd-servers=" + where.String()}, os.Args[3:]...)
	os.Exit(cli.Run(app.NewAPIServerCommand()))
}
